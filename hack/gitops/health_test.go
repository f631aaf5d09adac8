// What deploy/gitops tells Argo CD and Flux about claims, with the interpreters that these use; and what tools find that know
// no more than conditions (kstatus: Flux without expressions, Helm, kpt).
package gitops

import (
	"encoding/json"
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/fluxcd/cli-utils/pkg/kstatus/status"
	"github.com/fluxcd/pkg/apis/kustomize"
	"github.com/fluxcd/pkg/runtime/cel"
	lua "github.com/yuin/gopher-lua"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/yaml"
)

const (
	argo = "../../deploy/gitops/argocd-health.lua"
	flux = "../../deploy/gitops/flux-health.yaml"
)

// A claim, and its health in Argo CD, in Flux, and by its conditions alone.
type example struct {
	name, metadata, status string
	argo                   string
	flux, conditions       status.Status
}

const seen = `"generation": 3, "finalizers": ["objectbucket.io/finalizer"]`

var examples = []example{
	{"nobody has seen it", `"generation": 1`,
		`{"conditions": [{"type": "Ready", "status": "Unknown", "reason": "Pending"}]}`,
		"Progressing", status.InProgressStatus, status.InProgressStatus},
	{"nobody has seen it, and its CRD has no default", `"generation": 1`, ``,
		"Progressing", status.InProgressStatus, status.CurrentStatus},
	{"it is being provisioned", seen,
		`{"phase": "Pending", "conditions": [{"type": "Ready", "status": "False", "reason": "Provisioning"}]}`,
		"Progressing", status.InProgressStatus, status.InProgressStatus},
	{"it waits for its class", seen,
		`{"phase": "Pending", "conditions": [{"type": "Ready", "status": "False", "reason": "StorageClassNotFound"}]}`,
		"Progressing", status.InProgressStatus, status.InProgressStatus},
	{"it must be changed", seen,
		`{"phase": "Failed", "conditions": [{"type": "Ready", "status": "False", "reason": "BucketTaken"}]}`,
		"Degraded", status.FailedStatus, status.InProgressStatus},
	{"it is bound", seen,
		`{"phase": "Bound", "conditions": [{"type": "Ready", "status": "True", "reason": "Bound", "observedGeneration": 3}]}`,
		"Healthy", status.CurrentStatus, status.CurrentStatus},
	{"it is bound, and an edit was not seen", seen,
		`{"phase": "Bound", "conditions": [{"type": "Ready", "status": "True", "reason": "Bound", "observedGeneration": 2}]}`,
		"Progressing", status.InProgressStatus, status.CurrentStatus},
	{"it is bound, and its CRD keeps no conditions", seen, `{"phase": "Bound"}`,
		"Healthy", status.CurrentStatus, status.CurrentStatus},
	{"it gets new keys", seen,
		`{"phase": "Bound", "conditions": [{"type": "Ready", "status": "False", "reason": "WaitingForCredentials"}]}`,
		"Progressing", status.InProgressStatus, status.InProgressStatus},
	{"its new keys are throttled", seen,
		`{"phase": "Bound", "conditions": [{"type": "Ready", "status": "False", "reason": "Throttled"}]}`,
		"Progressing", status.InProgressStatus, status.InProgressStatus},
	{"its generation rises with each status", seen,
		`{"phase": "Bound", "conditions": [{"type": "Ready", "status": "True", "reason": "Bound"}]}`,
		"Healthy", status.CurrentStatus, status.CurrentStatus},
	{"somebody deleted its bucket", seen,
		`{"phase": "Bound", "conditions": [{"type": "Ready", "status": "False", "reason": "BucketGone"}]}`,
		"Degraded", status.FailedStatus, status.InProgressStatus},
	{"it is being deleted", seen + `, "deletionTimestamp": "2026-01-01T00:00:00Z"`,
		`{"phase": "Released", "conditions": [{"type": "Ready", "status": "False", "reason": "Removing"}]}`,
		"Progressing", status.InProgressStatus, status.TerminatingStatus},
}

func (e example) object(t *testing.T) map[string]any {
	t.Helper()
	text := `{"apiVersion": "objectbucket.io/v1alpha1", "kind": "ObjectBucketClaim", "metadata": {"name": "photos", ` + e.metadata + `}`
	if e.status != "" {
		text += `, "status": ` + e.status
	}
	var object unstructured.Unstructured
	if err := object.UnmarshalJSON([]byte(text + `}`)); err != nil {
		t.Fatal(err)
	}
	return object.Object
}

func TestArgoCD(t *testing.T) {
	script, err := os.ReadFile(argo)
	if err != nil {
		t.Fatal(err)
	}
	for _, e := range examples {
		t.Run(e.name, func(t *testing.T) {
			state := lua.NewState()
			defer state.Close()
			state.SetGlobal("obj", value(state, e.object(t)))
			if err := state.DoString(string(script)); err != nil {
				t.Fatal(err)
			}
			health, ok := state.Get(-1).(*lua.LTable)
			if !ok {
				t.Fatalf("not a table: %v", state.Get(-1))
			}
			if is := health.RawGetString("status").String(); is != e.argo {
				t.Errorf("%s, not %s", is, e.argo)
			}
			if message := health.RawGetString("message"); message.Type() != lua.LTString {
				t.Errorf("the message is no text: %v", message)
			}
		})
	}
}

// A value of JSON as Argo CD gives it to a script.
func value(state *lua.LState, of any) lua.LValue {
	switch of := of.(type) {
	case map[string]any:
		table := state.NewTable()
		for key, inner := range of {
			table.RawSetString(key, value(state, inner))
		}
		return table
	case []any:
		table := state.NewTable()
		for _, inner := range of {
			table.Append(value(state, inner))
		}
		return table
	case string:
		return lua.LString(of)
	case bool:
		return lua.LBool(of)
	case int64:
		return lua.LNumber(of)
	case float64:
		return lua.LNumber(of)
	default:
		return lua.LNil
	}
}

func TestFlux(t *testing.T) {
	text, err := os.ReadFile(flux)
	if err != nil {
		t.Fatal(err)
	}
	var spec struct {
		HealthCheckExprs []kustomize.CustomHealthCheck `json:"healthCheckExprs"`
	}
	if err := yaml.UnmarshalStrict(text, &spec); err != nil {
		t.Fatal(err)
	}
	if len(spec.HealthCheckExprs) != 1 {
		t.Fatalf("%d checks", len(spec.HealthCheckExprs))
	}
	evaluator, err := cel.NewStatusEvaluator(&spec.HealthCheckExprs[0].HealthCheckExpressions)
	if err != nil {
		t.Fatal(err)
	}
	for _, e := range examples {
		t.Run(e.name, func(t *testing.T) {
			found, err := evaluator.Evaluate(t.Context(), &unstructured.Unstructured{Object: e.object(t)})
			if err != nil {
				t.Fatal(err)
			}
			if found.Status != e.flux {
				t.Errorf("%s, not %s", found.Status, e.flux)
			}
		})
	}
}

func TestConditions(t *testing.T) {
	for _, e := range examples {
		t.Run(e.name, func(t *testing.T) {
			found, err := status.Compute(&unstructured.Unstructured{Object: e.object(t)})
			if err != nil {
				t.Fatal(err)
			}
			if found.Status != e.conditions {
				t.Errorf("%s, not %s", found.Status, e.conditions)
			}
		})
	}
}

// What the alert for claims that wait takes for passing, both take for passing.
func TestPassing(t *testing.T) {
	read := func(path string) string {
		text, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		return string(text)
	}
	rules, script, expressions := read("../../deploy/monitoring/rules.yaml"), read(argo), read(flux)
	reasons := regexp.MustCompile(`oldest_unbound_claim_seconds\{reason=~"\|([A-Za-z|]*)"`).FindStringSubmatch(rules)
	if reasons == nil {
		t.Fatal("the alert has no reasons")
	}
	// Claims with these are not bound yet.
	first := []string{"BucketNotFound", "Pending", "Provisioning"}
	for _, reason := range strings.Split(reasons[1], "|") {
		if slices.Contains(first, reason) {
			continue
		}
		if !strings.Contains(script, reason+" = true") {
			t.Errorf("%s is not passing in %s", reason, argo)
		}
		if !strings.Contains(expressions, "'"+reason+"'") {
			t.Errorf("%s is not passing in %s", reason, flux)
		}
	}
}

// The condition of a claim that nobody has seen is the default of our CRD.
func TestDefault(t *testing.T) {
	text, err := os.ReadFile("../../crds/objectbucketclaims.yaml")
	if err != nil {
		t.Fatal(err)
	}
	var crd struct {
		Spec struct {
			Versions []struct {
				Schema struct {
					OpenAPIV3Schema struct {
						Properties struct {
							Status struct {
								Default json.RawMessage `json:"default"`
							} `json:"status"`
						} `json:"properties"`
					} `json:"openAPIV3Schema"`
				} `json:"schema"`
			} `json:"versions"`
		} `json:"spec"`
	}
	if err := yaml.Unmarshal(text, &crd); err != nil {
		t.Fatal(err)
	}
	for _, version := range crd.Spec.Versions {
		created := example{metadata: `"generation": 1`, status: string(version.Schema.OpenAPIV3Schema.Properties.Status.Default)}
		found, err := status.Compute(&unstructured.Unstructured{Object: created.object(t)})
		if err != nil {
			t.Fatal(err)
		}
		if found.Status != status.InProgressStatus {
			t.Errorf("a claim that nobody has seen is %s", found.Status)
		}
	}
}
