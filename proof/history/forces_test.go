package history_test

import (
	"testing"

	"github.com/stretchr/testify/assert"

	"github.com/seed14bd9ef4/redsync/proof/history"
)

// Clients hear of a release by force within 5. Nodes lose nothing. The holder x has an expiry of 20, and is to extend its lock
// first at 12+20/3. In the scenes with 1e9, it holds for more than a second.
func TestCheckOfForces(t *testing.T) {
	forces := history.Rules{LostSlop: 1, Sights: history.Sights{Stands: 10}, Forces: history.Forces{Hears: 5, Well: true}}
	judge(t, forces, []row{
		{"forced", "$x; o force 20-22 value=v; x lost 24 byforce told; $y #2", ""},
		{"the next one comes as the force begins", "$x; o force 22-23 value=v; x lost 24 byforce told; $y #2", ""},
		{"the next one comes before the force begins", "$x; o force 23-23 value=v; x lost 24 byforce told; $y #2", "exclusion"},
		{"the next one comes, and another one was forced", "$x; o force 20-22 value=u; $y #2", "exclusion"},
		{"nobody was forced", "$x; $y #2", "exclusion"},
		{"forced, of readers and of a writer", "$x reads; o force 20-22 value=v; x lost 24 byforce told; $y #2", ""},
		{"permits, forced", "$x permits=1; o force 20-22 value=v; x lost 24 byforce told; $y permits=1", ""},
		{"permits, and nobody was forced", "$x permits=1; $y permits=1", "more permits held than there are"},
		{"two come after the force", "$x; o force 20-22 value=v; x lost 24 byforce told; $y #2; z 15 23-60/50 #3 owner=z value=u", "exclusion"},
		{"the one that was told goes on", "$x; o force 20-22 value=v; x lost 24 byforce told; x extended 25-45; $y #2", "forced lock stays held"},
		{"the next token is lower", "$x token=9; o force 20-22 value=v; x lost 24 byforce told; $y #2", "token order"},
		{"the next token is the same", "$x; o force 20-22 value=v; x lost 24 byforce told; $y #1", "token used twice"},
		{"the next one has been asked since before", "$x; o force 20-22 value=v; x lost 24 byforce told; $y #3; z 51 52-60/55 #2 owner=z value=u", "token order"},
		{"told that it was forced, by nobody", "$x; x lost 24 byforce told", "lock gone that nobody has forced"},
		{"told that it was forced, before", "$x; x lost 19 byforce told; o force 20-22 value=v", "lock gone that nobody has forced"},
		{"lost, by nobody", "$x; x lost 24 told", "lock gone that nobody has forced"},
		{"lost, and another one was forced", "$x; o force 20-22 value=u; x lost 24 told", "lock gone that nobody has forced"},
		{"lost at the end", "$x; x lost 31 told", ""},
		{"lost at the end of an extension", "$x; x extended 20-40; x lost 39 told", "lock gone that nobody has forced"},
		{"lost when another one has released it", "$x; z unlock 20 shares=x; x lost 24 told", ""},
		{"told that it was forced, when another one has released it", "$x; z unlock 20 shares=x; x lost 24 byforce told", ""},
		{"forced in vain", "$x; o force 20-22 value=v err=taken; x extended 30-50", ""},
		{"forced in vain, and lost", "$x; o force 20-22 value=v err=no-quorum; x lost 24 byforce told", ""},
		{"forced, and never told", "$x; o force 20-22 value=v", "forced lock stays held"},
		{"forced, and told in time", "$x; o force 20-22 value=v; x lost 27 byforce told", ""},
		{"forced, and told late", "$x; o force 20-22 value=v; x lost 28 byforce told", "forced lock stays held"},
		{"forced, and told late because it paused", "$x; o force 20-22 value=v; x lost 28 byforce paused; x told 28 byforce", ""},
		{"forced, and unlocked in time", "$x; o force 20-22 value=v; x unlock 27", ""},
		{"forced, and unlocked late", "$x; o force 20-22 value=v; x unlock 28", "forced lock stays held"},
		{"forced, and does not hear", "$deaf; o force 20-22 value=v", ""},
		{"forced twice", "$deaf; o force 20-22 value=v; o force 25-26 value=v err=not-held; $y #2", ""},
		{"forced twice, and told after the first", "$x; o force 20-22 value=v; o force 23-24 value=v; x lost 28 byforce told", "forced lock stays held"},
		{"forced, and unlocked after its time", "$x until=26; o force 20-22 value=v; x unlock 40", ""},
		{"extended before the force ends", "$deaf; o force 20-22 value=v; x extended 23-42", ""},
		{"extended after the force", "$deaf; o force 20-22 value=v; x extended 30-43", "forced lock stays held"},
		{"extended after the force, and set again", "$deaf heals; o force 20-22 value=v; x extended 30-43", ""},
		{"extended after the force, and set again by another", "$deaf; z 13 14-31 owner=z value=v shares=x heals; o force 20-22 value=v; x extended 30-43", ""},
		{"extended after the force by one that sets nothing again", "$deaf heals; z 13 14-31 owner=z value=v shares=x; o force 20-22 value=v; x extended 30-43", ""},
		{"set again, and adopted by one that hears", "$deaf heals; o force 20-22 value=v; z 25 26-60 owner=z value=v hears shares=x", ""},
		{"set again by one that hears", "$x heals; o force 20-22 value=v; x extended 25-43", "forced lock stays held"},
		{"set again for a while by one that hears", "$x heals; o force 20-22 value=v; x extended 25-43; x lost 27 byforce told", ""},
		{"an observer is told nothing", "$x; o force 20-22 value=v; x lost 24", "observer not told once of a loss"},
		{"an observer is told twice", "$x; o force 20-22 value=v; x lost 24 byforce told; x told 25 byforce", "observer not told once of a loss"},
		{"an observer is told twice of a loss", "$x; x lost 31 told; x told 32", "observer not told once of a loss"},
		{"an observer is not told that it was a force", "$x; o force 20-22 value=v; x lost 24 byforce; x told 25", "observer not told once of a loss"},
		{"an observer is told of a loss that the client did not", "$x; x told 31", ""},
		{"told of another reason than the force", "$x until=1000000037; o force 1000000020-1000000021 value=v; x lost 1000000022 told", "observer not told once of a loss"},
		{"told of the force, after long", "$x until=1000000037; o force 1000000020-1000000021 value=v; x lost 1000000022 byforce told", ""},
		{"told of another reason, when it was to extend", "$x until=1000000037; o force 1000000020-1000000021 value=v; x lost 1000000025 told", ""},
		{"told of another reason, before it hears", "$x until=1000000037; o force 1000000011-1000000021 value=v; x lost 1000000022 told", ""},
		{"told of another reason, and does not hear", "$deaf until=1000000037; o force 1000000020-1000000021 value=v; x lost 1000000022 told", ""},
		{"told of another reason, after a pause", "$x until=1000000037; o force 1000000020-1000000021 value=v; x lost 1000000022 paused told", ""},
		{"free when it was forced", "$x; o force 20-22 value=v; x lost 24 byforce told; o saw 22-23 free", ""},
		{"free before the force begins", "$x; o force 20-22 value=v; x lost 24 byforce told; o saw 15-19 free", "look contradicts a holder"},
		{"begun within the minimal hold", "$x keeps=40; $y #2", "begun too soon exclusion"},
		{"begun after a forced one's end", "$x keeps=40; o force 20-22 value=v; x lost 24 byforce told; $y #2", ""},
		{"the forced one knows nothing for long, and does not hear", "$deaf; o force 20-22 value=v; x lost 30 told; $y #2", ""},
	})
}

// The zero value of Forces judges no time, and no loss that may have another reason.
func TestForcesThatAreNotJudged(t *testing.T) {
	judge(t, history.Rules{}, []row{
		{"lost", "x 10 12-31 #1 value=v hears; x lost 24", ""},
		{"forced", "x 10 12-31 #1 value=v hears; o force 13-14 value=v", ""},
	})
	assert.Len(t, history.Check(parse("x 10 12-31 #1 value=v hears; x lost 24 byforce"), history.Rules{}), 1)
}
