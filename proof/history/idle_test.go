package history_test

import (
	"fmt"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"

	"github.com/seed14bd9ef4/redsync/proof/history"
)

// bounds are the bounds of waits in these tests.
var bounds = history.Idle{Most: 10, Beside: 1, Recovers: 3, Attempt: 7, Place: 5, Outlast: 2}

// The rests are those of the client x: when each begins and ends.
func TestRests(t *testing.T) {
	for _, test := range []struct{ name, history, rests string }{
		{"nobody waits", "y 99 100-150/120; y unlocked 121", ""},
		{"free all the time", "x waits 100-200", "100-200"},
		{"its delays are its own", "x waits 100-200 unjudged", ""},
		{"it gets the lock", "x waits 100; x 99 150-190/170; x unlocked 171", "100-150"},
		{"somebody holds", "x waits 100-200; y 119 120-150/140; y unlocked 141", "100-120 141-200"},
		{"somebody else gets it", "x waits 100-200; y 119 120-150/120; y unlocked 121", "100-120 121-200"},
		{"an Unlock that fails: until the keys have run out", "x waits 100-200; y 119 120-150/140; y unlocked 141 err=no", "100-120 152-200"},
		{"nobody unlocks", "x waits 100-200; y 119 120-150; y extended 140-170", "100-120 172-200"},
		{"a minimal hold", "x waits 100-200; y 119 120-150/140 keeps=50; y unlocked 141 keeps=50", "100-120 172-200"},
		{"another name", "x waits 100-200; y 119 120-150/140 name=b; y unlocked 141 name=b", "100-200"},
		{"one of several names is taken", "x waits 100-200 more=b; y 119 120-150/140 name=b; y unlocked 141 name=b", "100-120 141-200"},
		{"permits of the name are no lock", "x waits 100-200; y 119 120-150/140 permits=1 weight=1; y unlocked 141 permits=1 weight=1", "100-200"},
		{"enough permits", "x waits 100-200 permits=3 weight=2; y 119 120-150/140 permits=3 weight=1; y unlocked 141 permits=3 weight=1", "100-120 120-200"},
		{"too few permits", "x waits 100-200 permits=3 weight=2; y 119 120-150/140 permits=3 weight=2; y unlocked 141 permits=3 weight=2", "100-120 141-200"},
		{"a reader beside readers", "x waits 100-200 reads; y 119 120-150/140 reads; y unlocked 141 reads", "100-120 120-200"},
		{"a reader beside a writer", "x waits 100-200 reads; y 119 120-150/140; y unlocked 141", "100-120 141-200"},
		{"a reader behind a writer", "x waits 100-200 reads; w waits 130-160 unjudged; y 119 120-150/140 reads; y unlocked 141 reads", "100-120 120-130 141-200"},
		{"a writer beside readers", "x waits 100-200; y 119 120-150/140 reads; y unlocked 141 reads", "100-120 141-200"},
		{"fair, and the first waits for another name", "x waits 100-200 fair; w waits 110-190 unjudged more=b; y 119 120-150/140 name=b; y unlocked 141", "100-120 141-200"},
		{"not fair, and another one waits for another name", "x waits 100-200; w waits 110-190 unjudged more=b; y 119 120-150/140 name=b; y unlocked 141", "100-200"},
		{"fair, and the first has no quorum", "x waits 100-200 fair; w waits 110-190 unjudged process=q; ails 120-150 nodes=012 process=q", "100-120 160-200"},
		{"another one has no quorum, and its attempt lasts on", "x waits 100-200; w waits 110-190 unjudged process=q; ails 120-150 nodes=012 process=q", "100-120 160-200"},
		{"a minority fails", "x waits 100-200; ails 120-150 nodes=01", "100-200"},
		{"a majority fails", "x waits 100-200; ails 120-150 nodes=012", "100-120 153-200"},
		{"a majority fails for its process", "x waits 100-200; ails 120-150 nodes=01; ails 120-140 nodes=2 process=p", "100-120 143-200"},
		{"a majority fails for another process", "x waits 100-200; ails 120-150 nodes=012 process=q", "100-200"},
		{"a majority answers late", "x waits 100-200; ails 120-150 nodes=012 late=1", "100-120 153-200"},
		{"one set of two has no quorum", "x waits 100-200 joint; ails 120-150 nodes=34", "100-120 153-200"},
		{"a node fails again before it has recovered", "x waits 100-200; ails 120-150 nodes=012; ails 151-160 nodes=012", "100-120 163-200"},
		{"keys were left on a minority", "x waits 100-200; left 120-150 nodes=01", "100-120 120-150 150-200"},
		{"fair, and the client that left keys keeps its place", "x waits 100-200 fair; left 120-150 nodes=01", "100-120 125-150 150-200"},
		{"keys were left on a majority", "x waits 100-200; left 120-150 nodes=012", "100-120 150-200"},
		{"keys were left, and a late node is needed", "x waits 100-200; left 120-150 nodes=01; ails 130-140 nodes=2 late=15", "100-120 120-150 150-200"},
		{"keys were left, and a node is too late", "x waits 100-200; left 120-150 nodes=01; ails 130-137 nodes=2 late=16", "100-120 120-130 140-150 150-200"},
	} {
		t.Run(test.name, func(t *testing.T) {
			var got []string
			for _, r := range history.Rests(parse(test.history), bounds) {
				if r.Client == "x" {
					got = append(got, fmt.Sprintf("%d-%d", r.From, r.To))
				}
			}
			assert.Equal(t, test.rests, strings.Join(got, " "))
		})
	}
}

func TestCheckOfWaits(t *testing.T) {
	judge(t, history.Rules{}, []row{{"waits are not judged", "x waits 100-111", ""}})
	judge(t, history.Rules{Idle: bounds}, []row{
		{"as long as a free lock may rest", "x waits 100-110", ""},
		{"longer", "x waits 100-111", history.Idled},
		{"beside keys that were left", "left 90-200 nodes=0; x waits 100-130", ""},
		{"longer beside keys that were left", "left 90-200 nodes=0; x waits 100-131", history.Idled},
	})
}
