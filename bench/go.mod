module github.com/seed14bd9ef4/redsync/bench

go 1.26.0

replace (
	github.com/seed14bd9ef4/redsync => ../
	github.com/seed14bd9ef4/redsync/proof => ../proof
	github.com/seed14bd9ef4/redsync/redsyncotel => ../redsyncotel
)

require (
	github.com/bsm/redislock v0.10.0
	github.com/go-redsync/redsync/v4 v4.18.1
	github.com/redis/go-redis/v9 v9.23.0
	github.com/redis/rueidis v1.0.79
	github.com/seed14bd9ef4/redsync v0.0.0-00010101000000-000000000000
	github.com/seed14bd9ef4/redsync/proof v0.0.0-00010101000000-000000000000
	github.com/stretchr/testify v1.12.1
)

require (
	github.com/cespare/xxhash/v2 v2.3.0 // indirect
	github.com/hashicorp/errwrap v1.0.0 // indirect
	github.com/hashicorp/go-multierror v1.1.1 // indirect
	go.uber.org/atomic v1.12.0 // indirect
	go.yaml.in/yaml/v3 v3.0.5 // indirect
	golang.org/x/sys v0.48.0 // indirect
)
