package wire

import (
	"testing"

	"github.com/stretchr/testify/assert"
)

// The version in INFO says which commands a server should have. Descendants of Redis name an older one beside their own,
// and others no number at all.
func TestNativesOfVersions(t *testing.T) {
	for info, want := range map[string]Native{
		"redis_version:8.3.9": 0, "redis_version:8.4.0": DelEx | Look | MSetEx, "redis_version:10.0": DelEx | Look | MSetEx,
		"redis_version:255.255.255": DelEx | Look | MSetEx, "redis_version:7.2.4\r\nredict_version:9.9.9": 0,
		"redis_version:7.2.4\r\nserver_name:valkey\r\nvalkey_version:8.1.4": 0,
		"redis_version:7.2.4\r\nvalkey_version:9.0.0":                       DelIfEq | Look,
		"redis_version:8.6.3\r\nvalkey_version:9.1.2":                       DelIfEq | Look | MSetEx,
		"redis_version:": 0, "redis_version:8": 0, "redis_version:v8.6": 0, "redis_version:8.x": 0, "": 0,
	} {
		assert.Equal(t, want, nativesIn("# Server\r\n"+info+"\r\nuptime_in_seconds:1\r\n"), info)
	}
	assert.True(t, isPassing(refusal("READONLY You can't write against a read only replica.")))
	assert.False(t, isPassing(refusal("NOPERM this user has no permissions")))
}
