package yourtests

import (
	"testing"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"
	"github.com/testcontainers/testcontainers-go"
	container "github.com/testcontainers/testcontainers-go/modules/redis"

	"github.com/seed14bd9ef4/redsync/pool"
)

// A container is a server like any other. Without Docker the test is skipped.
func TestContainer(t *testing.T) {
	testcontainers.SkipIfProviderIsNotHealthy(t)
	server, err := container.Run(t.Context(), "redis:8")
	testcontainers.CleanupContainer(t, server)
	require.NoError(t, err)
	url, err := server.ConnectionString(t.Context())
	require.NoError(t, err)
	options, err := redis.ParseURL(url)
	require.NoError(t, err)
	client := redis.NewClient(options)
	defer client.Close()
	locks(t, pool.New(client))
}
