// Package rueidispool makes the options of a go-redis client from those of a rueidis client. A program that uses
// [rueidis] describes each of its Redis nodes once, for both libraries:
//
//	opt, err := rueidispool.Options(rueidis.ClientOption{InitAddress: []string{"redis-1:6379"}, Password: password})
//	if err != nil {
//		return err
//	}
//	p := pool.New(redis.NewClient(opt), pool.WithRestartGuard(8*time.Second))
//
// The pool opens connections of its own, and uses no connection of a rueidis client: README.md says why.
//
// This package is stable (docs/versions.md).
//
// [rueidis]: https://pkg.go.dev/github.com/redis/rueidis
package rueidispool
