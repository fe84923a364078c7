package realredis_test

import (
	"cmp"
	"fmt"
	"os"
	"regexp"
	"strconv"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/seed14bd9ef4/redsync/internal/testkit/realredis"
	"github.com/seed14bd9ef4/redsync/internal/testkit/testmain"
)

func TestMain(m *testing.M) { testmain.Run(m) }

// A version is what a server says of itself.
type version struct {
	product string // "Redis", "Valkey" or "Redict"
	number  string // "7.0.15"
}

// versionOf reads the answer to INFO server. Valkey and Redict also name the version of Redis that it is compatible with.
func versionOf(info string) (v version) {
	for _, v.product = range []string{"Valkey", "Redict", "Redis"} {
		field := regexp.MustCompile(`(?mi)^` + v.product + `_version:(\S+)`)
		if match := field.FindStringSubmatch(info); match != nil {
			v.number = match[1]
			return v
		}
	}
	return version{}
}

// atLeast compares the first two numbers of versions.
func atLeast(number, floor string) bool {
	of := func(number string) (major, minor int) {
		match := regexp.MustCompile(`^(\d+)\.(\d+)`).FindStringSubmatch(number)
		if match == nil {
			return 0, 0
		}
		major, _ = strconv.Atoi(match[1])
		minor, _ = strconv.Atoi(match[2])
		return major, minor
	}
	major, minor := of(number)
	floorMajor, floorMinor := of(floor)
	return cmp.Or(cmp.Compare(major, floorMajor), cmp.Compare(minor, floorMinor)) >= 0
}

// The tests run on a server that the README promises. The log says which, for .ci/servers.
func TestServerIsOneOfTheReadme(t *testing.T) {
	info, err := realredis.Start(t, 1)[0].Do("info", "server")
	require.NoError(t, err)
	is := versionOf(fmt.Sprint(info))
	t.Logf("the tests run on %s %s", is.product, is.number)
	readme, err := os.ReadFile("../../../README.md")
	require.NoError(t, err)
	floor := regexp.MustCompile(strings.Replace(is.product, "Redict", "Redis", 1) + ` ([\d.]+)\+`).FindSubmatch(readme)
	require.NotNil(t, floor, "the README does not promise %s", is.product)
	assert.True(t, atLeast(is.number, string(floor[1])), "the README promises %s", floor[0])
}
