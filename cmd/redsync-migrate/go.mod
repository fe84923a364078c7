module github.com/seed14bd9ef4/redsync/cmd/redsync-migrate

go 1.26.0

replace github.com/seed14bd9ef4/redsync => ../../

require (
	github.com/go-redsync/redsync/v4 v4.18.1
	github.com/pmezard/go-difflib v1.0.0
	github.com/redis/go-redis/v9 v9.23.0
	github.com/seed14bd9ef4/redsync v0.0.0-00010101000000-000000000000
	github.com/stretchr/testify v1.12.1
	golang.org/x/tools v0.49.0
)

require (
	golang.org/x/mod v0.39.0 // indirect
	golang.org/x/sync v0.24.0 // indirect
)
