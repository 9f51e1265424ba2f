{{- define "own-step.steps" -}}
{{- $shelves := list (dict "namespace" "left" "gadget" "a") (dict "namespace" "left" "gadget" "b") (dict "namespace" .Release.Namespace "gadget" "c") -}}
{{- list (dict
  "name" "tidy-up"
  "event" "post-upgrade"
  "args" (list "--gently")
  "rbac" (.Files.Get "rbac/tidy-up.json" | fromJson)
  "each" (dict "shelf" $shelves "cellar" list)) | toJson -}}
{{- end -}}
