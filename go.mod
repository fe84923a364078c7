module github.com/seed14bd9ef4/redsync

go 1.25.0

require (
	github.com/alicebob/miniredis/v2 v2.40.0
	github.com/hashicorp/go-multierror v1.1.1
	github.com/redis/go-redis/v9 v9.22.0
	github.com/stretchr/testify v1.8.4
	github.com/yuin/gopher-lua v1.1.1
	go.uber.org/goleak v1.3.0
	pgregory.net/rapid v1.3.0
)

require (
	github.com/cespare/xxhash/v2 v2.3.0 // indirect
	github.com/davecgh/go-spew v1.1.1 // indirect
	github.com/hashicorp/errwrap v1.0.0 // indirect
	github.com/kr/text v0.2.0 // indirect
	github.com/pmezard/go-difflib v1.0.0 // indirect
	go.uber.org/atomic v1.11.0 // indirect
	golang.org/x/sys v0.30.0 // indirect
	gopkg.in/yaml.v3 v3.0.1 // indirect
)
