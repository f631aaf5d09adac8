{{/* Content of file .name. In the repository these are symbolic links, which Helm follows. */}}
{{- define "provisioner.file" -}}
{{- $content := .root.Files.Get .name -}}
{{- if not $content -}}
{{- $remedy := "Package it in a clone of the repository, helm package deploy/helm/aws-s3-provisioner, and install the package." -}}
{{- fail (printf "\n\nThis copy of the chart has no %s, which is a symbolic link in the repository.\n%s\n" .name $remedy) -}}
{{- end -}}
{{- $content -}}
{{- end -}}

{{/* The namespace of the operator. */}}
{{- define "provisioner.namespace" -}}
{{- default .Release.Namespace .Values.namespaceOverride -}}
{{- end -}}

{{/* Name of what is in a namespace. */}}
{{- define "provisioner.name" -}}
{{- $name := default .Chart.Name .Values.nameOverride -}}
{{- if .Values.fullnameOverride -}}
{{- .Values.fullnameOverride -}}
{{- else if contains $name .Release.Name -}}
{{- .Release.Name -}}
{{- else -}}
{{- printf "%s-%s" .Release.Name $name | trunc 63 | trimSuffix "-" -}}
{{- end -}}
{{- end -}}

{{/* Name of what several releases would share: no other namespace and release has it, as neither can have a colon. */}}
{{- define "provisioner.uniqueName" -}}
{{- $name := include "provisioner.name" . -}}
{{- if eq $name (include "provisioner.namespace" .) -}}{{ $name }}{{- else -}}{{ include "provisioner.namespace" . }}:{{ $name }}{{- end -}}
{{- end -}}

{{/* Not `default`: all pods of the namespace that name no other one have it, and would have the operator's rights. */}}
{{- define "provisioner.serviceAccount" -}}
{{- $own := ternary (include "provisioner.name" .) "" .Values.serviceAccount.create -}}
{{- $name := .Values.serviceAccount.name | default $own -}}
{{- if has $name (list "" "default") -}}
{{- $problem := "The operator would use the ServiceAccount default, and every pod of the namespace would have its rights, such as" -}}
{{- $remedy := "Name one that the operator alone uses: --set serviceAccount.name=NAME, or let the chart make it: serviceAccount.create=true." -}}
{{- fail (printf "\n\n%s reading Secrets.\n%s\n" $problem $remedy) -}}
{{- end -}}
{{- $name -}}
{{- end -}}

{{- define "provisioner.selector" -}}
app.kubernetes.io/name: {{ default .Chart.Name .Values.nameOverride }}
app.kubernetes.io/instance: {{ .Release.Name }}
{{- end -}}

{{/* The pods of the operator for namespace .watched. */}}
{{- define "provisioner.selectorOf" -}}
{{ include "provisioner.selector" .root }}
{{- if include "provisioner.hasSeveral" .root }}
app.kubernetes.io/component: {{ .watched | quote }}
{{- end }}
{{- end -}}

{{- define "provisioner.labels" -}}
{{ include "provisioner.selector" . }}
app.kubernetes.io/version: {{ .Chart.AppVersion | quote }}
app.kubernetes.io/managed-by: {{ .Release.Service }}
helm.sh/chart: {{ printf "%s-%s" .Chart.Name .Chart.Version | replace "+" "_" | trunc 63 | trimAll "-_." }}
{{- with .Values.commonLabels }}
{{ toYaml . }}
{{- end }}
{{- end -}}

{{/* Labels and annotations of an object: those of all objects, and its own .labels and .annotations. */}}
{{- define "provisioner.metadata" -}}
labels:
  {{- toYaml (merge dict (default dict .labels) (include "provisioner.labels" .root | fromYaml)) | nindent 2 }}
{{- with merge dict (default dict .annotations) (default dict .root.Values.commonAnnotations) }}
annotations:
  {{- toYaml . | nindent 2 }}
{{- end }}
{{- end -}}

{{- define "provisioner.image" -}}
{{- $image := .Values.image -}}
{{- if not $image.repository -}}
{{- $problem := "image.repository is empty. No public registry has the image: build it, push it to a registry of yours, and add" -}}
{{- fail (printf "\n\n%s\n\n  --set image.repository=REGISTRY/aws-s3-provisioner\n" $problem) -}}
{{- end -}}
{{- with default .Values.global.imageRegistry $image.registry }}{{ . }}/{{ end -}}
{{- $image.repository -}}
{{- if $image.digest -}}@{{ $image.digest }}{{- else -}}:{{ default .Chart.AppVersion $image.tag }}{{- end -}}
{{- end -}}

{{/* The value of the label bucket-provisioner, as the operator derives it. */}}
{{- define "provisioner.label" -}}
{{- regexReplaceAll "[^A-Za-z0-9]+$" (.Values.provisionerName | replace "/" "-" | trunc 63) "" -}}
{{- end -}}

{{/* Whether there are several operators, one for each of watchNamespaces: not empty if so. */}}
{{- define "provisioner.hasSeveral" -}}
{{- if gt (len (default list .Values.watchNamespaces)) 1 -}}true{{- end -}}
{{- end -}}

{{/* What the operator for namespace .watched has at the end of its name, if there are several. */}}
{{- define "provisioner.suffix" -}}
{{- if include "provisioner.hasSeveral" .root -}}-{{ .watched }}{{- end -}}
{{- end -}}

{{/* Names of the leases, as every operator derives it from its flags, each after .prefix. The operator's variables and the Role
both have them, so that they always agree. */}}
{{- define "provisioner.leases" -}}
{{- $leases := list -}}
{{- range .root.Values.watchNamespaces | default (list "") -}}
{{- $lease := include "provisioner.leaseOf" (dict "name" $.root.Values.provisionerName "namespace" .) -}}
{{- $leases = append $leases (printf "%s%s" $.prefix $lease) -}}
{{- end -}}
{{- join ", " $leases -}}
{{- end -}}

{{/* The lease of an operator with provisioner .name for .namespace, or if that is empty for all. */}}
{{- define "provisioner.leaseOf" -}}
{{- $name := .name -}}
{{- $label := "[a-z0-9]([-a-z0-9]*[a-z0-9])?" -}}
{{- $one := "" -}}
{{- with .namespace -}}{{- $one = printf "--%s" . -}}{{- end -}}
{{- $isOrdinary := and (regexMatch (printf "^%s([.]%s)*/%s$" $label $label $label) $name) (not (contains "--" $name)) -}}
{{- if and $isOrdinary (le (add (len $name) (len $one)) 253) -}}
{{- printf "%s%s" ($name | replace "/" ".") $one -}}
{{- else -}}
{{- $served := printf "%s\n%s" $name .namespace -}}
{{- $readable := list -}}
{{- range regexSplit "[^a-z0-9-]+" (lower $served) -1 -}}
{{- with . | trimAll "-" -}}{{- $readable = append $readable . -}}{{- end -}}
{{- end -}}
{{- $readable = $readable | join "." | trunc 244 | trimAll "-." | default "lease" -}}
{{- printf "%s-%s" $readable ($served | sha256sum | trunc 8) -}}
{{- end -}}
{{- end -}}

{{/* Fails if an operator in another namespace serves the same claims: leases are in the operators' namespaces, so both would
lead. Whoever creates roles for the cluster may list its leases; without a cluster, `lookup` finds nothing. */}}
{{- define "provisioner.checkLeases" -}}
{{- if and .Values.rbac.create .Values.checks.leases -}}
{{- $everywhere := include "provisioner.leaseOf" (dict "name" .Values.provisionerName "namespace" "") -}}
{{- $same := append (include "provisioner.leases" (dict "root" . "prefix" "") | splitList ", ") $everywhere -}}
{{- $ofOneNamespace := printf "^%s--[a-z0-9-]+$" ($everywhere | replace "." "[.]") -}}
{{- range (lookup "coordination.k8s.io/v1" "Lease" "" "").items -}}
{{- $name := .metadata.name -}}
{{- $serves := or (has $name $same) (and (not $.Values.watchNamespaces) (regexMatch $ofOneNamespace $name)) -}}
{{- if and $serves (ne .metadata.namespace (include "provisioner.namespace" $)) (default dict .spec).holderIdentity -}}
{{- $problem := "An operator in namespace %s has the lease %s, and serves claims that this release would serve, too." -}}
{{- $problem = printf $problem .metadata.namespace $name -}}
{{- $remedy := "Two that work on the same claims hinder each other: choose another provisionerName, or uninstall that one first." -}}
{{- $gone := printf "If it does not run any more: kubectl delete lease %s --namespace %s" $name .metadata.namespace -}}
{{- fail (printf "\n\n%s\n%s\n%s\n" $problem $remedy $gone) -}}
{{- end -}}
{{- end -}}
{{- end -}}
{{- end -}}

{{/* Fails if extraArgs or extraEnv has what the chart sets, because then Role, port or number of replicas would not fit. */}}
{{- define "provisioner.checkSettings" -}}
{{- $instead := dict "provisioner-name" "set provisionerName" "namespace" "set watchNamespaces" "admin-address" "set adminPort" }}
{{- $instead = merge $instead (dict "concurrency" "set concurrency" "resync" "set resync" "log-format" "set log.format") }}
{{- $instead = merge $instead (dict "verbosity" "set log.level" "v" "set log.level" "metrics-namespace-label" "set metricsNamespaceLabel") }}
{{- $instead = merge $instead (dict "lease-name" "the chart derives it from provisionerName and watchNamespaces") }}
{{- $instead = merge $instead (dict "lease-namespace" "the lease is in the namespace of the operator") }}
{{- $instead = merge $instead (dict "leader-elect" "an upgrade starts new pods beside the old ones, and only the lease lets one work") }}
{{- $instead = merge $instead (dict "all-namespaces" "set watchNamespaces" "A" "set watchNamespaces" "n" "set watchNamespaces") }}
{{- if and (include "provisioner.hasSeveral" .) (hasKey (merge dict .Values.podLabels .Values.commonLabels) "app.kubernetes.io/component") -}}
{{- fail "\n\ncommonLabels or podLabels has app.kubernetes.io/component: remove it, because it selects the pods of each of watchNamespaces.\n" -}}
{{- end -}}
{{- range .Values.extraArgs -}}
{{- $flag := regexFind "^(--?[a-z-]+|-A)" . | trimPrefix "-" | trimPrefix "-" -}}
{{- with get $instead $flag -}}{{- fail (printf "\n\nextraArgs has --%s: %s.\n" $flag .) -}}{{- end -}}
{{- end -}}
{{- range .Values.extraEnv -}}
{{- $flag := ternary "provisioner-name" (.name | trimPrefix "PROVISIONER_" | lower | replace "_" "-") (eq .name "PROVISIONER_NAME") -}}
{{- if hasPrefix "PROVISIONER_" .name -}}
{{- $name := .name -}}
{{- with get $instead $flag -}}{{- fail (printf "\n\nextraEnv has %s: %s.\n" $name .) -}}{{- end -}}
{{- end -}}
{{- end -}}
{{- end -}}

{{/* Fails if object .kind .name exists, and is not of this release. What to do is .remedy. */}}
{{- define "provisioner.mustBeOurs" -}}
{{- $root := .root -}}
{{- with lookup .apiVersion .kind (default "" .namespace) .name -}}
{{- $annotations := default dict .metadata.annotations -}}
{{- $name := get $annotations "meta.helm.sh/release-name" -}}
{{- $namespace := get $annotations "meta.helm.sh/release-namespace" -}}
{{- if or (ne $name $root.Release.Name) (ne $namespace $root.Release.Namespace) -}}
{{- $owner := ternary (printf "of release %s in namespace %s" $name $namespace) "of no release" (ne $name "") -}}
{{- fail (printf "\n\n%s %s exists, and is %s.\n%s\n" .kind .metadata.name $owner $.remedy) -}}
{{- end -}}
{{- end -}}
{{- end -}}

{{/* The variables that all commands in a pod share: whose claims they serve or show. */}}
{{- define "provisioner.env" -}}
- name: PROVISIONER_NAME
  value: {{ .root.Values.provisionerName | quote }}
{{- with .watched }}
- name: PROVISIONER_NAMESPACE
  value: {{ . | quote }}
{{- end }}
# The Role for the lease has it, too.
- name: PROVISIONER_LEASE_NAME
  value: {{ include "provisioner.leaseOf" (dict "name" .root.Values.provisionerName "namespace" .watched) | quote }}
{{- end -}}
