package main

import (
	"context"
	"fmt"
	"os/exec"
	"runtime"
	"runtime/debug"
	"strings"

	"github.com/redis/go-redis/v9"
)

// A machine describes the computer and the software of a run.
type machine struct {
	Commit    string   `json:"commit"`   // "unknown" outside a checkout
	Platform  string   `json:"platform"` // "linux/amd64"
	CPUs      int      `json:"cpus"`
	Go        string   `json:"go"`
	Server    string   `json:"server"`
	Libraries []string `json:"libraries"` // "path version"
}

func (m machine) String() string {
	return fmt.Sprintf("%s, %d CPUs shared by the program and the servers; %s; redis-server %s; %s.",
		m.Platform, m.CPUs, m.Go, m.Server, strings.Join(m.Libraries, ", "))
}

func describeMachine(ctx context.Context, c *redis.Client) (machine, error) {
	text, err := c.Info(ctx, "server").Result()
	if err != nil {
		return machine{}, fmt.Errorf("INFO server: %w", err)
	}
	return machine{
		Commit:   commit(ctx),
		Platform: runtime.GOOS + "/" + runtime.GOARCH,
		CPUs:     runtime.NumCPU(),
		Go:       runtime.Version(),
		Server:   parseInfo(text)["redis_version"],
		Libraries: libraryVersions("github.com/go-redsync/redsync/v4", "github.com/redis/go-redis/v9",
			"github.com/redis/rueidis", "github.com/bsm/redislock"),
	}, nil
}

// commit returns the commit of the checkout that the program runs in, with "-dirty" if files have changed since.
func commit(ctx context.Context) string {
	name, err := exec.CommandContext(ctx, "git", "describe", "--always", "--dirty", "--exclude=*").Output()
	if err != nil {
		return "unknown"
	}
	return strings.TrimSpace(string(name))
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
