module github.com/seed14bd9ef4/redsync/cmd/redsync-migrate

go 1.26.0

replace github.com/seed14bd9ef4/redsync => ../../

require (
	github.com/go-redis/redismock/v9 v9.2.0
	github.com/go-redsync/redsync/v4 v4.18.1
	github.com/hashicorp/go-multierror v1.1.1
	github.com/pmezard/go-difflib v1.0.0
	github.com/seed14bd9ef4/redsync v0.0.0-00010101000000-000000000000
	github.com/stretchr/testify v1.12.1
	go.uber.org/goleak v1.3.0
	golang.org/x/tools v0.49.0
)

require (
	github.com/cespare/xxhash/v2 v2.3.0 // indirect
	github.com/gomodule/redigo v1.9.3 // indirect
	github.com/hashicorp/errwrap v1.0.0 // indirect
	github.com/redis/go-redis/v9 v9.23.0 // indirect
	go.uber.org/atomic v1.12.0 // indirect
	go.yaml.in/yaml/v3 v3.0.5 // indirect
	golang.org/x/mod v0.39.0 // indirect
	golang.org/x/sync v0.24.0 // indirect
	golang.org/x/sys v0.48.0 // indirect
)
