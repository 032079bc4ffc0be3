{{- define "duovec.name" -}}
{{- if contains "duovec" .Release.Name -}}
{{- .Release.Name | trunc 63 | trimSuffix "-" -}}
{{- else -}}
{{- printf "%s-duovec" .Release.Name | trunc 63 | trimSuffix "-" -}}
{{- end -}}
{{- end -}}

{{- define "duovec.selector" -}}
app.kubernetes.io/name: duovec
app.kubernetes.io/instance: {{ .Release.Name }}
{{- end -}}

{{- define "duovec.labels" -}}
{{ include "duovec.selector" . }}
app.kubernetes.io/version: {{ .Chart.AppVersion | quote }}
app.kubernetes.io/managed-by: {{ .Release.Service }}
helm.sh/chart: {{ printf "%s-%s" .Chart.Name .Chart.Version }}
{{- end -}}

{{- define "duovec.image" -}}
{{ .Values.image.repository }}:{{ .Values.image.tag | default .Chart.AppVersion }}
{{- end -}}

{{/* The claim that keeps the plans. */}}
{{- define "duovec.plans" -}}
{{ .Values.gpu.planClaim | default (printf "%s-plans" (include "duovec.name" .)) }}
{{- end -}}

{{/* What the probes ask for; the scheme follows from TLS. */}}
{{- define "duovec.get" -}}
httpGet:
  path: {{ .path }}
  port: http
  scheme: {{ ternary "HTTPS" "HTTP" (ne .root.Values.tls.secret "") }}
{{- end -}}

{{- define "duovec.security" -}}
allowPrivilegeEscalation: false
readOnlyRootFilesystem: true
capabilities:
  drop: [ALL]
{{- end -}}

{{- define "duovec.mounts" -}}
- {name: tmp, mountPath: /tmp}
{{- if .Values.package.claim }}
- {name: packages, mountPath: /packages, readOnly: true}
{{- end }}
{{- end -}}

{{/* A setting as its environment variable has it; numbers keep their digits. */}}
{{- define "duovec.value" -}}
{{- if kindIs "slice" . -}}
{{ join "," . }}
{{- else if kindIs "float64" . -}}
{{ if eq . (floor .) }}{{ int64 . }}{{ else }}{{ . }}{{ end }}
{{- else -}}
{{ . }}
{{- end -}}
{{- end -}}

{{- define "duovec.series" -}}
namespace="{{ .Release.Namespace }}",service="{{ include "duovec.name" . }}"
{{- end -}}
