{{/*
RELEASE-SUFFIX in at most 52 characters, which is what a CronJob's name may have. One name serves account, Job and
CronJobs alike. When it is too long the release's name is cut, not the suffix: a person looks for the step. The hash
keeps two long releases apart.
Takes: root, suffix.
*/}}
{{- define "belay.name" -}}
{{- $release := .root.Release.Name -}}
{{- $full := printf "%s-%s" $release .suffix -}}
{{- $room := int (sub 42 (len .suffix)) -}}
{{- if le (len $full) 52 -}}
{{- $full -}}
{{- else if ge $room 1 -}}
{{- printf "%s-%s-%s" (regexReplaceAll "[-.]+$" (trunc $room $release) "") (sha256sum $release | trunc 8) .suffix -}}
{{- else -}}
{{- printf "%s-%s" (regexReplaceAll "[-.]+$" (trunc 43 .suffix) "") (sha256sum $full | trunc 8) -}}
{{- end -}}
{{- end -}}

{{/*
The name of what lives outside the release's namespace. Dots part the fields: a namespace and a suffix have none, so two
releases can never mean the same name.
Takes: root, suffix.
*/}}
{{- define "belay.longName" -}}
{{- printf "belay.%s.%s.%s" .root.Release.Namespace .root.Release.Name .suffix -}}
{{- end -}}

{{/*
The suffix of what exists once per family (status, cleanup). The family is named unless the release has just its name, so
that two families in one release do not share an object.
Takes: root, family, what.
*/}}
{{- define "belay.operateSuffix" -}}
{{- if eq .family .root.Release.Name -}}
{{- .what -}}
{{- else -}}
{{- printf "%s-%s" .family .what -}}
{{- end -}}
{{- end -}}

{{/*
Labels of every object. The cleanup after `helm uninstall` finds its objects by release, namespace and family; the namespace is
among them because a release's name is unique in its namespace only, and some objects are cluster-wide.
Takes: root, settings, family, component, step (its name; status or cleanup for those; empty for the policy, which is no hook).
*/}}
{{- define "belay.labels" -}}
{{- $labels := dict -}}
{{- range $key, $value := .settings.labels -}}
  {{- $_ := set $labels $key $value -}}
{{- end -}}
{{- $_ := set $labels "app.kubernetes.io/name" "belay" -}}
{{- $_ := set $labels "app.kubernetes.io/instance" .root.Release.Name -}}
{{- $_ := set $labels "app.kubernetes.io/managed-by" "Helm" -}}
{{- $_ := set $labels "app.kubernetes.io/component" .component -}}
{{- $_ := set $labels "helm.sh/chart" (printf "%s-%s" .root.Chart.Name .root.Chart.Version | replace "+" "_" | trunc 63 | trimSuffix "-") -}}
{{- $_ := set $labels "belay.dev/family" .family -}}
{{- $_ := set $labels "belay.dev/namespace" .root.Release.Namespace -}}
{{- $_ := set $labels "belay.dev/release" .root.Release.Name -}}
{{- if .step -}}
  {{- $_ := set $labels "belay.dev/step" .step -}}
{{- end -}}
{{- toYaml $labels -}}
{{- end -}}

{{/*
Annotations of a hook object. The user's never replace Helm's.
Takes: settings, hook, weight, deletePolicy; logs (true on a Job: Helm prints its log, which is all that Helm's user sees).
*/}}
{{- define "belay.hook" -}}
{{- $annotations := dict -}}
{{- range $key, $value := .settings.annotations -}}
  {{- $_ := set $annotations $key $value -}}
{{- end -}}
{{- $_ := set $annotations "helm.sh/hook" .hook -}}
{{- $_ := set $annotations "helm.sh/hook-weight" (toString .weight) -}}
{{- $_ := set $annotations "helm.sh/hook-delete-policy" .deletePolicy -}}
{{- if .logs -}}
  {{- $_ := set $annotations "helm.sh/hook-output-log-policy" "hook-succeeded,hook-failed" -}}
{{- end -}}
{{- toYaml $annotations -}}
{{- end -}}
