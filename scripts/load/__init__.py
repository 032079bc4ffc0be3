"""The one driver of load: connections, loops, wrk, servers, percentiles and tables.

`http_bench`, `edge_bench` and `soak` say with it what is sent and what is checked.
"""
