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
{{- if eq $name .Release.Namespace -}}{{ $name }}{{- else -}}{{ .Release.Namespace }}:{{ $name }}{{- end -}}
{{- end -}}

{{- define "provisioner.serviceAccount" -}}
{{- $own := ternary (include "provisioner.name" .) "default" .Values.serviceAccount.create -}}
{{- .Values.serviceAccount.name | default $own -}}
{{- end -}}

{{- define "provisioner.selector" -}}
app.kubernetes.io/name: {{ default .Chart.Name .Values.nameOverride }}
app.kubernetes.io/instance: {{ .Release.Name }}
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

{{- define "provisioner.image" -}}
{{- $image := .Values.image -}}
{{- if not $image.repository -}}
{{- $problem := "image.repository is empty. No public registry has the image: build it, push it to a registry of yours, and add" -}}
{{- fail (printf "\n\n%s\n\n  --set image.repository=REGISTRY/aws-s3-provisioner\n" $problem) -}}
{{- end -}}
{{- $image.repository -}}
{{- if $image.digest -}}@{{ $image.digest }}{{- else -}}:{{ default .Chart.AppVersion $image.tag }}{{- end -}}
{{- end -}}

{{/* Name of the lease: other operators for the same claims derive it, too, unless they have --namespace. It is said to the
operator as well as to the Role, so that both always have the same. */}}
{{- define "provisioner.lease" -}}
{{- $name := .Values.provisionerName -}}
{{- $label := "[a-z0-9]([-a-z0-9]*[a-z0-9])?" -}}
{{- $served := printf "%s\n%s" $name .Values.watchNamespace -}}
{{- if and (not .Values.watchNamespace) (regexMatch (printf "^%s([.]%s)*/%s$" $label $label $label) $name) -}}
{{- $name | replace "/" "." -}}
{{- else -}}
{{- $labels := regexSplit "[^a-z0-9-]+" (lower $served) -1 -}}
{{- $readable := list -}}
{{- range $labels -}}{{- with . | trimAll "-" -}}{{- $readable = append $readable . -}}{{- end -}}{{- end -}}
{{- printf "%s-%s" ($readable | join "." | trunc 240 | trimAll "-." | default "lease") ($served | sha256sum | trunc 8) -}}
{{- end -}}
{{- end -}}

{{/* Fails if extraArgs or env has what the chart sets, because then Role, port or number of replicas would not fit. */}}
{{- define "provisioner.checkSettings" -}}
{{- $instead := dict "provisioner-name" "set provisionerName" "namespace" "set watchNamespace" "admin-address" "set adminPort" }}
{{- $instead = merge $instead (dict "concurrency" "set concurrency" "resync" "set resync" "log-format" "set logging.format") }}
{{- $instead = merge $instead (dict "verbosity" "set logging.verbosity" "v" "set logging.verbosity") }}
{{- $instead = merge $instead (dict "lease-name" "the chart derives it from provisionerName and watchNamespace") }}
{{- $instead = merge $instead (dict "lease-namespace" "the lease is in the namespace of the release") }}
{{- $instead = merge $instead (dict "leader-elect" "an upgrade starts new pods beside the old ones, and only the lease lets one work") }}
{{- range .Values.extraArgs -}}
{{- $flag := regexFind "^--?[a-z-]+" . | trimPrefix "-" | trimPrefix "-" -}}
{{- with get $instead $flag -}}{{- fail (printf "\n\nextraArgs has --%s: %s.\n" $flag .) -}}{{- end -}}
{{- end -}}
{{- range .Values.env -}}
{{- $flag := ternary "provisioner-name" (.name | trimPrefix "PROVISIONER_" | lower | replace "_" "-") (eq .name "PROVISIONER_NAME") -}}
{{- if hasPrefix "PROVISIONER_" .name -}}
{{- $name := .name -}}
{{- with get $instead $flag -}}{{- fail (printf "\n\nenv has %s: %s.\n" $name .) -}}{{- end -}}
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
