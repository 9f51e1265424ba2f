{{/*
The steps of the family, as a JSON array for the library's templates. Their arguments and the namespaces in their rules come from the
same values, so that a Job never asks for more than its account may do.
*/}}
{{- define "event-mesh.steps" -}}
{{- $sources := index .Values.steps "create-missing-sources" -}}
{{- $controller := splitList "/" $sources.sourceController -}}
{{- $createMissingSources := dict
  "name" "create-missing-sources"
  "args" (list
    "--integration-namespace" $sources.integrationNamespace
    "--source-controller" $sources.sourceController
    "--ready-within" (int $sources.readyWithin | toString))
  "rbac" (.Files.Get "rbac/create-missing-sources.json" | fromJson)
  "placeholders" (dict
    "integrationNamespace" $sources.integrationNamespace
    "sourceControllerNamespace" (first $controller)
    "sourceControllerName" (last $controller)) -}}

{{- $legacy := index .Values.steps "scale-down-legacy" -}}
{{- $args := list -}}
{{- $each := dict "deployment" list "statefulset" list "replicaset" list "refuseWhile" list -}}
{{- range $legacy.workloads -}}
  {{- $namespace := .namespace | default $legacy.legacyNamespace -}}
  {{- $args = concat $args (list "--workload" (printf "%s/%s/%s" .kind $namespace .name)) -}}
  {{- $group := lower .kind -}}
  {{- $_ := set $each $group (append (index $each $group) (dict "namespace" $namespace "name" .name)) -}}
{{- end -}}
{{- range $legacy.refuseWhile -}}
  {{- $args = concat $args (list "--refuse-while" .) -}}
  {{- $kind := splitn "." 2 (splitList ":" . | first) -}}
  {{- /* api.group and not group: the step takes a group without a dot for a mistake, in a placeholder too. */ -}}
  {{- $_ := set $each "refuseWhile" (append $each.refuseWhile (dict "resource" $kind._0 "api.group" $kind._1)) -}}
{{- end -}}
{{- if $legacy.mustExist -}}
  {{- $args = append $args "--must-exist" -}}
{{- end -}}
{{- $scaleDownLegacy := dict
  "name" "scale-down-legacy"
  "args" $args
  "rbac" (.Files.Get "rbac/scale-down-legacy.json" | fromJson)
  "each" $each -}}
{{- list $createMissingSources $scaleDownLegacy | toJson -}}
{{- end -}}
