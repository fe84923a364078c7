module github.com/seed14bd9ef4/redsync/examples/yourtests

go 1.26.0

replace github.com/seed14bd9ef4/redsync => ../../

require (
	github.com/alicebob/miniredis/v2 v2.40.0
	github.com/go-redis/redismock/v9 v9.2.0
	github.com/go-redsync/redsync/v4 v4.18.1
	github.com/gomodule/redigo v1.9.3
	github.com/redis/go-redis/v9 v9.23.0
	github.com/seed14bd9ef4/redsync v0.0.0-00010101000000-000000000000
	github.com/stretchr/testify v1.12.1
	github.com/testcontainers/testcontainers-go v0.40.0
	github.com/testcontainers/testcontainers-go/modules/redis v0.40.0
	go.uber.org/goleak v1.3.0
	go.uber.org/mock v0.6.0
)
