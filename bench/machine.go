package main

import (
	"context"
	"fmt"
	"runtime"
	"runtime/debug"
	"strings"

	"github.com/redis/go-redis/v9"
)

// A machine is where and with what a run was measured.
type machine struct {
	platform  string // "linux/amd64"
	cpus      int
	goVersion string
	server    string
	libraries []string // "path version"
}

func (m machine) String() string {
	return fmt.Sprintf("%s, %d CPUs shared by the program and the servers; %s; redis-server %s; %s.",
		m.platform, m.cpus, m.goVersion, m.server, strings.Join(m.libraries, ", "))
}

func describeMachine(ctx context.Context, addr string) (machine, error) {
	version, err := serverVersion(ctx, addr)
	return machine{
		platform:  runtime.GOOS + "/" + runtime.GOARCH,
		cpus:      runtime.NumCPU(),
		goVersion: runtime.Version(),
		server:    version,
		libraries: libraryVersions("github.com/go-redsync/redsync/v4", "github.com/redis/go-redis/v9"),
	}, err
}

func serverVersion(ctx context.Context, addr string) (string, error) {
	c := redis.NewClient(&redis.Options{Addr: addr})
	defer func() { _ = c.Close() }()
	info, err := c.Info(ctx, "server").Result()
	if err != nil {
		return "", fmt.Errorf("INFO server: %w", err)
	}
	for line := range strings.Lines(info) {
		if version, ok := strings.CutPrefix(line, "redis_version:"); ok {
			return strings.TrimSpace(version), nil
		}
	}
	return "of unknown version", nil
}

// libraryVersions returns the versions that the program was built with.
func libraryVersions(paths ...string) []string {
	versions := make(map[string]string)
	if info, ok := debug.ReadBuildInfo(); ok {
		for _, dep := range info.Deps {
			versions[dep.Path] = dep.Version
		}
	}
	list := make([]string, len(paths))
	for i, path := range paths {
		list[i] = strings.TrimSpace(strings.TrimPrefix(path, "github.com/") + " " + versions[path])
	}
	return list
}
