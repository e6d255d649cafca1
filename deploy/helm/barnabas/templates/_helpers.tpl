{{- define "barnabas.fullname" -}}
{{- if contains .Chart.Name .Release.Name }}{{ .Release.Name | trunc 50 | trimSuffix "-" }}{{ else }}{{ printf "%s-%s" .Release.Name .Chart.Name | trunc 50 | trimSuffix "-" }}{{ end }}
{{- end }}

{{- define "barnabas.selector" -}}
app.kubernetes.io/name: {{ .Chart.Name }}
app.kubernetes.io/instance: {{ .Release.Name }}
{{- end }}

{{- define "barnabas.labels" -}}
{{ include "barnabas.selector" . }}
app.kubernetes.io/version: {{ .Chart.AppVersion | quote }}
app.kubernetes.io/managed-by: {{ .Release.Service }}
helm.sh/chart: {{ printf "%s-%s" .Chart.Name .Chart.Version }}
{{- end }}

{{- define "barnabas.domain" -}}
{{ include "barnabas.fullname" . }}.{{ .Release.Namespace }}.svc.{{ .Values.clusterDomain }}
{{- end }}

{{- define "barnabas.protocol" -}}
{{ if .Values.scram.secret }}SASL_{{ end }}{{ if .Values.tls.secret }}SSL{{ else }}PLAINTEXT{{ end }}
{{- end }}

{{/* Values that do not fit together, each with what to do. */}}
{{- define "barnabas.validate" -}}
{{- $etcd := .Values.etcd -}}
{{- if not (has $etcd.mode (list "none" "bundled" "external")) }}{{ fail "etcd.mode must be none, bundled or external" }}{{ end -}}
{{- if and (eq $etcd.mode "none") (gt (int .Values.replicas) 1) }}{{ fail "several brokers need etcd: set etcd.mode to bundled or external" }}{{ end -}}
{{- if and (eq $etcd.mode "external") (not $etcd.external.endpoints) }}{{ fail "etcd.mode=external needs etcd.external.endpoints" }}{{ end -}}
{{- if and .Values.scram.secret (not (has .Values.scram.brokerUser .Values.scram.users)) }}{{ fail "scram.brokerUser must be one of scram.users" }}{{ end -}}
{{- if and .Values.acls.enabled (not .Values.scram.secret) (ne .Values.tls.clientAuth "required") }}{{ fail "acls.enabled needs clients with names: set scram.secret, or tls.secret with tls.clientAuth=required" }}{{ end -}}
{{- if and (ne .Values.tls.clientAuth "none") (not .Values.tls.secret) }}{{ fail "tls.clientAuth needs tls.secret" }}{{ end -}}
{{- if and .Values.acls.enabled (not .Values.scram.secret) (not .Values.acls.superUsers) }}{{ fail "acls.enabled needs acls.superUsers, with the principal of the brokers' certificate" }}{{ end -}}
{{- end }}

{{/* server.properties. What `config` gives comes last and counts. */}}
{{- define "barnabas.properties" -}}
{{- $protocol := include "barnabas.protocol" . -}}
{{- $several := ne .Values.etcd.mode "none" -}}
{{- $made := dict -}}
{{- $_ := set $made "listeners" (printf "CLIENTS://0.0.0.0:9092%s" (ternary ",BROKERS://0.0.0.0:19092" "" $several)) -}}
{{- $_ := set $made "listener.security.protocol.map" (printf "CLIENTS:%s%s" $protocol (ternary (printf ",BROKERS:%s" $protocol) "" $several)) -}}
{{- if $several }}
{{- $_ := set $made "inter.broker.listener.name" "BROKERS" -}}
{{- $copies := min 3 (int .Values.replicas) -}}
{{- range list "default.replication.factor" "offsets.topic.replication.factor" "transaction.state.log.replication.factor" }}
{{- $_ := set $made . $copies -}}
{{- end }}
{{- $_ := set $made "min.insync.replicas" (max 1 (sub $copies 1)) -}}
{{- else }}
{{- $_ := set $made "inter.broker.listener.name" "CLIENTS" -}}
{{- end }}
{{- with .Values.tls }}{{- if .secret }}
{{- $_ := set $made "ssl.keystore.location" "/etc/barnabas/tls/tls-combined.pem" -}}
{{- $_ := set $made "ssl.truststore.location" "/etc/barnabas/tls/ca.crt" -}}
{{- $_ := set $made "ssl.client.auth" .clientAuth -}}
{{- if and $several (not $.Values.scram.secret) }}
{{- $_ := set $made "listener.name.brokers.ssl.client.auth" "required" -}}
{{- end }}
{{- end }}{{- end }}
{{- if .Values.scram.secret }}
{{- $_ := set $made "sasl.enabled.mechanisms" .Values.scram.mechanism -}}
{{- $_ := set $made "sasl.mechanism.inter.broker.protocol" .Values.scram.mechanism -}}
{{- end }}
{{- if .Values.acls.enabled }}
{{- $_ := set $made "authorizer.class.name" "org.apache.kafka.metadata.authorizer.StandardAuthorizer" -}}
{{- $users := .Values.acls.superUsers -}}
{{- if .Values.scram.secret }}{{ $users = prepend $users (printf "User:%s" .Values.scram.brokerUser) }}{{ end -}}
{{- $_ := set $made "super.users" (join ";" $users) -}}
{{- end }}
{{- if eq .Values.etcd.mode "external" }}{{- with .Values.etcd.external }}{{- if .tlsSecret }}
{{- $_ := set $made "etcd.ssl.cafile" "/etc/barnabas/etcd/ca.crt" -}}
{{- end }}{{- end }}{{- end }}
{{- range $key, $value := merge (deepCopy .Values.config) $made }}
{{- /* Helm reads all numbers as floats, and would print large ones as 1e+09. */}}
{{ $key }}={{ if and (kindIs "float64" $value) (eq $value (floor $value)) }}{{ $value | int64 }}{{ else }}{{ $value }}{{ end }}
{{- end }}
{{- end }}

{{- define "barnabas.etcd" -}}
{{- if eq .Values.etcd.mode "external" -}}
etcd://{{ join "," .Values.etcd.external.endpoints }}/{{ .Values.etcd.prefix }}
{{- else -}}
{{- $hosts := list -}}
{{- $name := printf "%s-etcd" (include "barnabas.fullname" .) -}}
{{- range $i := until (int .Values.etcd.bundled.replicas) }}{{ $hosts = append $hosts (printf "%s-%d.%s.%s.svc.%s:2379" $name $i $name $.Release.Namespace $.Values.clusterDomain) }}{{ end -}}
etcd://{{ join "," $hosts }}/{{ .Values.etcd.prefix }}
{{- end -}}
{{- end }}
