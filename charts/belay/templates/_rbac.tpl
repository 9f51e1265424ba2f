{{/*
The rules of a step as JSON {"cluster": [rule], "namespaced": {NAMESPACE: [rule]}}, with every placeholder of what
`--print-rbac` printed filled in. Placeholders: ${home}, ${namespace}, each key of `placeholders` as ${KEY}, and for each
group of `each` (GROUP: [{KEY: value}]) ${GROUP-KEY}: a rule that names a group is repeated for each of its items, and is
left out when there is none. A placeholder nobody fills is refused, not granted.
Takes: root, settings, step (resolved).
*/}}
{{- define "belay.rules" -}}
{{- $fill := dict "home" .settings.home "namespace" .root.Release.Namespace -}}
{{- range $key, $value := .step.placeholders -}}
  {{- $_ := set $fill $key $value -}}
{{- end -}}
{{- $entries := list -}}
{{- range .step.rbac.clusterRules -}}
  {{- $entries = append $entries (dict "rule" .) -}}
{{- end -}}
{{- range $namespace, $rules := .step.rbac.namespaced -}}
  {{- range $rules -}}
    {{- $entries = append $entries (dict "namespace" $namespace "rule" .) -}}
  {{- end -}}
{{- end -}}
{{- $cluster := list -}}
{{- $namespaced := dict -}}
{{- range $entries -}}
  {{- $text := toJson . -}}
  {{- range $key, $value := $fill -}}
    {{- $text = replace (printf "${%s}" $key) $value $text -}}
  {{- end -}}
  {{- $texts := list $text -}}
  {{- range $group, $items := $.step.each -}}
    {{- if contains (printf "${%s-" $group) $text -}}
      {{- $repeated := list -}}
      {{- range $one := $texts -}}
        {{- range $item := $items -}}
          {{- $filled := $one -}}
          {{- range $key, $value := $item -}}
            {{- $filled = replace (printf "${%s-%s}" $group $key) $value $filled -}}
          {{- end -}}
          {{- $repeated = append $repeated $filled -}}
        {{- end -}}
      {{- end -}}
      {{- $texts = $repeated -}}
    {{- end -}}
  {{- end -}}
  {{- range $texts -}}
    {{- if contains "${" . -}}
      {{- fail (printf "belay: step %s: a placeholder in this rule is not filled: %s" $.step.name .) -}}
    {{- end -}}
    {{- $entry := fromJson . -}}
    {{- if hasKey $entry "namespace" -}}
      {{- $rules := index $namespaced $entry.namespace | default list -}}
      {{- $_ := set $namespaced $entry.namespace (append $rules $entry.rule | uniq) -}}
    {{- else -}}
      {{- $cluster = append $cluster $entry.rule | uniq -}}
    {{- end -}}
  {{- end -}}
{{- end -}}
{{- dict "cluster" $cluster "namespaced" $namespaced | toJson -}}
{{- end -}}

{{/*
"true" unless the cluster says that a namespace is not there. A Role in a missing namespace would fail the install on a fresh
cluster, where there is nothing to migrate. kube-system exists in every cluster: when even that is not found, there is
no cluster to ask (`helm template`, Argo CD) and the namespace is taken to exist. The release's own may be created by Helm.
What the chart's own objects create is not there yet when this asks, for the hooks after them neither: the README says so.
Takes: root, namespace.
*/}}
{{- define "belay.namespaceExists" -}}
{{- if or (eq .namespace .root.Release.Namespace) (lookup "v1" "Namespace" "" .namespace) (not (lookup "v1" "Namespace" "" "kube-system")) -}}
true
{{- end -}}
{{- end -}}

{{/*
An account and its rights, all of weight -10: before any Job of the same event.
Takes: root, settings, family, component, step, suffix, hook, deletePolicy, rules (as belay.rules gives them).
*/}}
{{- define "belay.account" -}}
{{- $name := include "belay.name" . -}}
{{- $longName := include "belay.longName" . -}}
{{- $labels := include "belay.labels" . -}}
{{- $annotations := include "belay.hook" (merge (dict "weight" -10) (pick . "settings" "hook" "deletePolicy")) -}}
apiVersion: v1
kind: ServiceAccount
metadata:
  name: {{ $name }}
  namespace: {{ .root.Release.Namespace }}
  labels:
    {{- $labels | nindent 4 }}
  annotations:
    {{- $annotations | nindent 4 }}
# The pod asks for its token; nobody else who uses this account gets one unasked.
automountServiceAccountToken: false
{{- if .rules.cluster }}
---
apiVersion: rbac.authorization.k8s.io/v1
kind: ClusterRole
metadata:
  name: {{ $longName }}
  labels:
    {{- $labels | nindent 4 }}
  annotations:
    {{- $annotations | nindent 4 }}
rules:
  {{- toYaml .rules.cluster | nindent 2 }}
---
apiVersion: rbac.authorization.k8s.io/v1
kind: ClusterRoleBinding
metadata:
  name: {{ $longName }}
  labels:
    {{- $labels | nindent 4 }}
  annotations:
    {{- $annotations | nindent 4 }}
roleRef:
  apiGroup: rbac.authorization.k8s.io
  kind: ClusterRole
  name: {{ $longName }}
subjects:
  - kind: ServiceAccount
    name: {{ $name }}
    namespace: {{ .root.Release.Namespace }}
{{- end }}
{{- range $namespace, $rules := .rules.namespaced }}
{{- if include "belay.namespaceExists" (dict "root" $.root "namespace" $namespace) }}
{{- $roleName := ternary $name $longName (eq $namespace $.root.Release.Namespace) }}
---
apiVersion: rbac.authorization.k8s.io/v1
kind: Role
metadata:
  name: {{ $roleName }}
  namespace: {{ $namespace }}
  labels:
    {{- $labels | nindent 4 }}
  annotations:
    {{- $annotations | nindent 4 }}
rules:
  {{- toYaml $rules | nindent 2 }}
---
apiVersion: rbac.authorization.k8s.io/v1
kind: RoleBinding
metadata:
  name: {{ $roleName }}
  namespace: {{ $namespace }}
  labels:
    {{- $labels | nindent 4 }}
  annotations:
    {{- $annotations | nindent 4 }}
roleRef:
  apiGroup: rbac.authorization.k8s.io
  kind: Role
  name: {{ $roleName }}
subjects:
  - kind: ServiceAccount
    name: {{ $name }}
    namespace: {{ $.root.Release.Namespace }}
{{- end }}
{{- end }}
{{- end -}}
