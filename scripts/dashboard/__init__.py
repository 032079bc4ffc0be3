"""The Grafana dashboard of duovec servers: `panels` says what is shown, `board` builds it."""
