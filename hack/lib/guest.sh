# shellcheck shell=bash
# How the demo works in a cluster or an AWS that is not its own: it takes names of its own there, and removes what it
# made and nothing else.

# Uses stack $stack, which may consist of what the user brought.
use_stack() {
  local environment
  environment=$(hack/stack.sh env --name "$stack")
  eval "$environment"
  # Names of buckets are shared by all who use a store, those of operators by all who use a cluster.
  if brought_to_stack AWS_ENDPOINT_URL; then archive=company-archive-$stack; fi
  if brought_to_stack KUBECONFIG; then provisioner=aws-s3.io/$stack; fi
  stack_used=yes
}

# Whether variable $1 was set by the user when the stack was started.
brought_to_stack() { grep -qs "^$1=" "${state%.stage}/brought"; }

# Creates what comes on standard input, with a label by which it is found again.
create() { kubectl label --local --filename - "$label" --output yaml | kubectl create --filename - | sed 's/^/  /'; }

# An example as it is, but for what differs in a cluster or an AWS of the user.
example() {
  sed "s|company-archive|$archive|; s|aws-s3.io/bucket|$provisioner|; s|region: .*|region: $AWS_REGION|;
    s|secretNamespace: .*|secretNamespace: $namespace|" "examples/$1.yaml"
}

# The keys of this shell. They go by standard input, where no list of processes shows them.
owner_secret() {
  printf '%s=%s\n' AWS_ACCESS_KEY_ID "$AWS_ACCESS_KEY_ID" AWS_SECRET_ACCESS_KEY "$AWS_SECRET_ACCESS_KEY" \
    ${AWS_SESSION_TOKEN:+AWS_SESSION_TOKEN "$AWS_SESSION_TOKEN"} |
    kubectl create secret generic example-owner --namespace "$namespace" --from-env-file /dev/stdin --dry-run=client --output yaml
}

# A stack of our own is removed as a whole. From a cluster or an AWS of the user only what was made there is removed,
# claims first.
clean_up() {
  [[ $stack_used && -s ${state%.stage}/brought ]] || return 0
  heading "Removing what was made in your cluster or AWS"
  remove_what_was_made || printf 'left behind: what has the label %s, or bucket %s\n' "$label" "$archive" >&2
}

# The ObjectBuckets of claims in the namespace, also of deleted claims.
records_of_claims() {
  kubectl get ob --output "jsonpath={range .items[?(@.spec.claimRef.namespace=='$namespace')]}{.metadata.name}{'\n'}{end}"
}

remove_what_was_made() {
  local kept='' ours record
  ours=$(kubectl get namespace --selector "$label" --output name)
  if [[ $ours && $(kubectl get obc --namespace "$namespace" --output name && records_of_claims) ]]; then
    running operator || (operator_starts) || return
    kubectl delete obc --all --namespace "$namespace" --timeout "${patience}s" || return
    # Those whose buckets would be deleted later.
    for record in $(records_of_claims); do
      kubectl annotate --overwrite ob "$record" objectbucket.io/orphan=remove || return
      kubectl wait --for delete --timeout "${patience}s" ob "$record" || return
    done
  fi
  kubectl delete secret,storageclass,namespace --all-namespaces --selector "$label" --timeout "${patience}s" || kept=yes
  # Where all installations of an operator share a lease.
  kubectl delete lease "cluster.${provisioner/\//.}--$namespace" --namespace kube-system --ignore-not-found || kept=yes
  kubectl delete crd --selector "$label" --timeout "${patience}s" || kept=yes
  [[ ! $bucket_made ]] || owner remove "$archive" || kept=yes
  [[ ! $kept ]]
}
