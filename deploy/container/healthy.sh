#!/bin/bash
# Whether the server of this container takes requests, by its port of the loopback.
set -eu
exec 3<>"/dev/tcp/127.0.0.1/${DUOVEC_PORT:-8080}"
printf 'GET /health HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n' >&3
read -r _ status _ <&3
[ "$status" = 200 ]
