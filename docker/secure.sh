#!/bin/sh
# Makes what the brokers of `docker compose --profile secure up` need, in the folder of the first argument: an authority,
# a certificate for each broker and for etcd, the password of the user `admin`, the token of HTTP, and the files by which
# clients log in as `admin`. At the next start all of it is there already. Only the user of the brokers can read it.
set -eu

folder=$1
owner=1001
names="secure-etcd secure1 secure2 secure3"
days=825

umask 077
cd "$folder"
if [ -e ready ]; then
    exit 0
fi
# What an interrupted run has left. The authority is new, so that all certificates have to be.
rm -rf authority.* admin.* http.token barnabas
for name in $names; do rm -f "$name".*; done

curve="-newkey ec -pkeyopt ec_paramgen_curve:P-256 -nodes"
openssl req -x509 $curve -days $((days * 4)) -subj "/CN=Barnabas authority" -keyout authority.key -out authority.pem \
    -addext "basicConstraints=critical,CA:TRUE" -addext "keyUsage=critical,keyCertSign,cRLSign" 2>/dev/null

for name in $names; do
    openssl req $curve -subj "/CN=$name" -keyout "$name.key" -out "$name.request" 2>/dev/null
    printf 'subjectAltName=DNS:%s,DNS:localhost,IP:127.0.0.1\nextendedKeyUsage=serverAuth,clientAuth\n' "$name" \
        >"$name.extensions"
    openssl x509 -req -in "$name.request" -CA authority.pem -CAkey authority.key -CAcreateserial -days $days \
        -extfile "$name.extensions" -out "$name.certificate" 2>/dev/null
    cat "$name.key" "$name.certificate" >"$name.pem"
    rm "$name.request" "$name.extensions"
done

openssl rand -hex 24 >admin.password
openssl rand -hex 32 >http.token
password=$(cat admin.password)

# For `barnabas` in the containers of the brokers.
mkdir barnabas
cat >barnabas/config.toml <<END
default = "secure"

[clusters.secure]
bootstrap_servers = ["secure1:9093", "secure2:9093", "secure3:9093"]
security_protocol = "SASL_SSL"
ssl_cafile = "$folder/authority.pem"
sasl_mechanism = "SCRAM-SHA-512"
sasl_plain_username = "admin"
sasl_plain_password = "$password"
END

# For the programs of Apache Kafka.
cat >admin.properties <<END
security.protocol=SASL_SSL
ssl.truststore.type=PEM
ssl.truststore.location=authority.pem
sasl.mechanism=SCRAM-SHA-512
sasl.jaas.config=org.apache.kafka.common.security.scram.ScramLoginModule required username="admin" password="$password";
END

# It signs no more certificates: for new ones, remove the volume.
rm authority.key authority.srl

chown -R "$owner" .
chmod 0700 .
: >ready
