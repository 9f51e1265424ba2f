module belay.dev/tests/cluster/manage

go 1.22
