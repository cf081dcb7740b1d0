module anthill-bench-nethttp

go 1.19
