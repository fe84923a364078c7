package history_test

import (
	"bytes"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/seed14bd9ef4/redsync/proof/history"
)

func TestCheck(t *testing.T) {
	judge(t, history.Rules{LostSlop: 2}, []row{
		{"nothing", "", ""},
		{"one after the other", "x 1 2-9/5; y 1 5-9", ""},
		{"two at once", "x 1 2-9/6; y 1 5-9", "exclusion"},
		{"after Until", "x 1 2-9/20; y 1 9-15", ""},
		{"before Until", "x 1 2-9; y 1 8-15", "exclusion"},
		{"of no use from the start", "x 1 2-9; y 1 8-7", ""},
		{"behind a short one", "x 1 2-9; y 1 3-4; z 1 5-6", "exclusion exclusion"},
		{"extended", "x 1 2-9; x extended 5-19; y 1 12-15", "exclusion"},
		{"extended to less", "x 1 2-9; x extended 5-7; y 1 8-15", ""},
		{"extended too late", "x 1 2-9; x extended 10-19; y 1 12-15", "exclusion"},
		{"extended too late, alone", "x 1 2-9 #7; x extended 10-19", ""},
		{"extended too late, and another before", "x 1 2-9; x extended 11-19; y 1 9-10", ""},
		{"extended after Unlock", "x 1 2-9/5; x extended 6-19; y 1 12-15", ""},
		{"extended after a loss", "x 1 2-9; x lost 5; x extended 6-19; y 1 12-15", ""},
		{"lost before", "x 1 2-9; x lost 5; y 1 5-9", ""},
		{"tokens rise", "x 1 2-3 #7; y 4 5-6 #8", ""},
		{"tokens fall", "x 1 2-3 #7; y 4 5-6 #6", "token order"},
		{"tokens fall, at once", "x 1 3-4 #7; y 2 5-6 #6", ""},
		{"a token twice", "x 1 3-4 #7; y 2 5-6 #7", "token used twice"},
		{"below one of long before", "x 1 2-3 #9; y 1 4-5 #5; z 6 7-8 #7", "token order"},
		{"none beside tokens", "x 1 2-3 #9; y 4 5-6", ""},
		{"shared", "x 1 2-9; y 3 4-12 shares=x; z 3 5-8 shares=x", ""},
		{"shared, and another", "x 1 2-9; y 3 4-12 shares=x; z 3 10-15", "exclusion"},
		{"shared, between two others", "x 1 2-9; y 1 3-8; z 1 4-5 shares=x", "exclusion exclusion"},
		{"shared, both beside a shorter one", "x 1 2-9; y 3 4-12; z 3 5-8 shares=y", "exclusion exclusion"},
		{"several names, and the first of them", "x 1 2-9 more=b,c; y 1 5-6", "exclusion"},
		{"several names, and the last of them", "x 1 2-9 more=b,c; y 1 5-6 name=c", "exclusion"},
		{"several names, and another one", "x 1 2-9 more=b,c; y 1 5-6 name=d", ""},
		{"several names after each other", "x 1 2-9/4 more=b; y 1 5-6 name=b; z 1 6-9 name=b more=c", ""},
		{"several names twice, two in common", "x 1 2-9 more=b,c; y 1 5-6 name=c more=b,d", "exclusion exclusion"},
		{"several names, extended", "x 1 2-9 more=b; x extended 5-19; y 1 12-15 name=b", "exclusion"},
		{"several names, unlocked", "x 1 2-9/5 more=b; x unlocked 6; y 1 5-15 name=b", ""},
		{"tokens of several names rise", "x 1 2-3 #7; y 4 5-6 #8 more=b; z 7 8-9 #9 name=b", ""},
		{"tokens of several names fall", "x 1 2-3 #7 name=b; y 4 5-6 #6 more=b,c", "token order"},
		{"a token of several names twice", "x 1 3-4 #7 more=b; y 2 5-6 #7 name=b", "token used twice"},
		{"readers at once", "x 1 2-9 reads; y 1 3-8 reads; z 1 4-12 reads", ""},
		{"a reader beside a writer", "x 1 2-9; y 1 8-15 reads", "exclusion"},
		{"a writer beside a reader", "x 1 2-9 reads; y 1 8-15", "exclusion"},
		{"a writer behind a short reader", "x 1 2-9 reads; y 1 3-4 reads; z 1 8-15", "exclusion"},
		{"a reader behind a short reader", "x 1 2-9; y 1 9-20 reads; z 1 10-15 reads", ""},
		{"a writer for long, and two readers", "x 1 2-9; y 1 3-20 reads; z 1 8-15 reads", "exclusion exclusion"},
		{"several names, and a reader of one", "x 1 2-9 more=b; y 1 3-20 reads name=b", "exclusion"},
		{"downgraded, and then a reader", "x 1 2-9; x downgrade 3; y 1 3-20 reads", ""},
		{"downgraded, and before a reader", "x 1 2-9; x downgrade 4; y 1 3-20 reads", "exclusion"},
		{"downgraded, and a writer", "x 1 2-9; x downgrade 4; y 1 5-20", "exclusion"},
		{"downgraded, extended, and a writer", "x 1 2-9; x downgrade 4; x extended 5-19; y 1 18-20", "exclusion"},
		{"downgraded and unlocked", "x 1 2-9/6; x downgrade 4; y 1 6-20", ""},
		{"downgraded after Unlock", "x 1 2-9/3; x downgrade 4; y 1 5-20", ""},
		{"downgraded too late", "x 1 2-9; x downgrade 10; y 1 11-13", ""},
		{"downgraded and extended too late", "x 1 2-9; x downgrade 10; x extended 12-19; y 1 11-14 reads; z 1 18-20", "exclusion"},
		{"tokens of readers, in any order", "x 1 2-3 #7 reads; y 4 5-6 #6 reads; z 7 8-9 #8", ""},
		{"a reader's below a writer's", "x 1 2-3 #7; y 4 5-6 #6 reads", "token order"},
		{"a writer's below a reader's", "x 1 2-3 #7 reads; y 4 5-6 #6", "token order"},
		{"a reader's below one of long before", "x 1 2-3 #7; y 4 5-6 #9 reads; z 7 8-9 #6 reads", "token order"},
		{"a reader's token twice", "x 1 3-4 #7 reads; y 2 5-6 #7 reads", "token used twice"},
		{"as many permits as there are", "x 1 2-9 permits=2; y 1 3-8 permits=2; z 1 8-12 permits=2", ""},
		{"a permit too many", "x 1 2-9 permits=2; y 1 3-8 permits=2; z 1 7-12 permits=2", "more permits held than there are"},
		{"a crashed holder's permit", "x 1 2-9 permits=1; y 1 9-12 permits=1", ""},
		{"a crashed holder's permit, too early", "x 1 2-9 permits=1; y 1 8-12 permits=1", "more permits held than there are"},
		{"an extended permit", "x 1 2-9 permits=1; x extended 8-15; y 1 9-12 permits=1", "more permits held than there are"},
		{"a permit given back", "x 1 2-9/5 permits=1; y 1 5-12 permits=1", ""},
		{"weights", "x 1 2-9 permits=5 weight=3; y 1 3-8 permits=5 weight=2", ""},
		{"weights, a permit too many", "x 1 2-9 permits=5 weight=3; y 1 3-8 permits=5 weight=3", "more permits held than there are"},
		{"a weight beyond all permits", "x 1 2-9 permits=2 weight=3", "more permits held than there are"},
		{"permits, and the lock of the name", "x 1 2-9 permits=1; y 1 3-8", ""},
		{"permits of two names", "x 1 2-9 permits=1; y 1 3-8 permits=1 name=b", ""},
		{"a permit of two clients", "x 1 2-9 permits=3 weight=2; y 3 4-12 permits=3 weight=2 shares=x; z 3 5-8 permits=3", ""},
		{"more of one number, and fewer", "x 1 2-9 permits=3; y 1 3-8 permits=1; z 1 4-8 permits=3", ""},
		{"more of one number, and too many", "x 1 2-9 permits=3; y 1 3-8 permits=1; z 1 4-8 permits=3 weight=2", "more permits held than there are"},
		{"too many of those who know of few", "x 1 2-9 permits=1; y 1 3-8 permits=4; z 1 4-8 permits=1", "more permits held than there are"},
		{"too many, found by who knows of most", "x 1 2-9 permits=2; y 1 3-8 permits=3 weight=2; z 1 4-8 permits=1", "more permits held than there are"},
		{"fewer permits when one has ended", "x 1 2-4 permits=2; y 1 3-9 permits=2; z 1 4-8 permits=1", ""},
		{"given away", "x 1 2-9; x gave 3; x extended 4-20; y 3 4-7 shares=x; z 3 8-15", ""},
		{"given away, and another", "x 1 2-9; x gave 3; y 3 4-7 shares=x; z 3 6-15", "exclusion"},
		{"adopted while it is unlocked", "x 1 2-9/5; x unlocked 8; y 6 7-12 shares=x; z 3 9-15", ""},
		{"adopted, of an Unlock that has failed", "x 1 2-9/5; x unlocked 6 err=no-quorum; y 7 8-12 shares=x; z 3 9-15", ""},
		{"adopted when it was unlocked", "x 1 2-9/5; x unlocked 6; y 7 8-12 shares=x; z 3 9-15", "exclusion"},
		{"kept, and another in time", "x 1 2-9/5 keeps=20; y 19 21-30", ""},
		{"kept, and another too soon", "x 1 2-9/5 keeps=20; y 12 20-30", "begun too soon"},
		{"kept after the expiry, and another too soon", "x 1 2-9 keeps=20; y 12 20-30", "begun too soon"},
		{"kept for longer by the one before", "x 1 2-9/5 keeps=20; y 21 22-30/23 keeps=2; z 21 24-30", ""},
		{"kept, and a term that was over when it began", "x 1 2-9/5 keeps=20; y 12 20-20", ""},
		{"kept, and shared too soon", "x 1 2-9 keeps=20; y 12 14-30 shares=x", ""},
		{"kept, and another name", "x 1 2-9/5 keeps=20; y 12 14-30 name=b", ""},
		{"leaders at once", "x 1 2-9 #7 leads within; y 1 5-9 #8 leads within", "exclusion"},
		{"a leader's term that goes back", "x 1 2-4 #7 leads within; y 1 5-9 #6 leads within", "leader's term out of order"},
		{"a leader's term that repeats", "x 1 2-4 #7 leads within; y 1 5-9 #7 leads within", "leader's term out of order token used twice"},
		{"leaders without terms", "x 1 2-4 leads within; y 1 5-9 leads within", "leader's term out of order"},
		{"a leader, and one that locks", "x 1 2-4 #7 leads within; y 1 5-9 #6", ""},
		{"a leader's term that goes on", "x 1 2-4 #7 leads within; x extended 5-8; y 1 8-9 #8 leads within", ""},
		{"a leader's term of no use", "x 1 2-4 #7 leads within; y 1 5-5 #6 leads within", ""},
		{"a key for ever", "key 1 ttl=-1", "key without a TTL"},
		{"set on two names", "key 1 name=a key=a value=v; key 1 name=b key=b value=v; key 1 name=a key=a value=v node=1; key 1 name=b key=b value=v node=1; key 2 name=b key=b value=v; key 2 name=a key=a value=v; key 3 name=a key=a value=w", ""},
		{"set on one of two names", "key 1 name=a key=a value=v; key 1 name=b key=b value=v; key 1 name=b key=b value=v node=1", "lock set in part"},
		{"set on one of two names, and then on both", "key 1 name=a key=a value=v; key 2 name=a key=a value=v; key 2 name=b key=b value=v", "lock set in part"},
		{"set on one of two names for a while", "key 1 name=a key=a value=v; key 1 name=b key=b value=v; key 2 name=a key=a value=v; key 3 name=a key=a value=v; key 3 name=b key=b value=v", "lock set in part"},
		{"keys of which nobody knows the values", "key 1 name=a key=a; key 1 name=b key=b; key 2 name=b key=b", ""},
		{"lost after", "x 1 2-9; x lost 12; y 1 9-15", "loss told too late"},
		{"lost after, within bounds", "x 1 2-9; x lost 11; y 1 9-15", ""},
		{"lost after a pause", "x 1 2-9; x lost 12 paused; y 1 9-15", ""},
		{"several names, lost after", "x 1 2-9 more=b; x lost 12; y 1 9-15 name=b", "loss told too late"},
		{"a reader lost after the next reader", "x 1 2-9 reads; x lost 12; y 1 9-15 reads", ""},
		{"a reader lost after a writer", "x 1 2-9 reads; x lost 12; y 1 8-9 reads; z 1 9-15", "loss told too late"},
		{"a permit lost after the next", "x 1 2-9 permits=1; x lost 12; y 1 9-15 permits=1", "loss told too late"},
		{"a permit lost after others", "x 1 2-9 permits=2; x lost 12; y 1 9-15 permits=2", ""},
		{"a permit lost after the last", "x 1 2-9 permits=2; x lost 13; y 1 9-15 permits=2; z 1 10-15 permits=2", "loss told too late"},
		{"a permit lost after the last, within bounds", "x 1 2-9 permits=2; x lost 12; y 1 9-15 permits=2; z 1 10-15 permits=2", ""},
		{"a function that ends after the next hold begins", "x 1 2-9/12 within; y 1 9-15", "loss told too late"},
		{"a function that ends in time", "x 1 2-9/11 within; y 1 9-15", ""},
		{"a context that ends before the function", "x 1 2-9/14 within; x lost 9; y 1 9-15", ""},
		{"a joined function that goes on for too long", "x 1 2-9 within; x gave 3; y 2 3-9 within shares=x; y gave 12; z 1 9-15", "loss told too late"},
		{"a joined function, and another hold", "x 1 2-9 within; x gave 3; y 2 3-9 within shares=x; y gave 7; z 1 6-15", "exclusion"},
		{"a function that ends after a pause", "x 1 2-9 within; x unlock 12 paused; y 1 9-15", ""},
		{"a promise that the client saw broken", "x broken 1 name=a", "promise to a client"},
	})
	judge(t, history.Rules{LostSlop: 1}, []row{
		{"shared, and unlocked by one", "x 1 2-9/5; y 3 4-12 shares=x; y extended 6-20; y lost 12; z 3 7-15", ""},
		{"adopted while it is unlocked, before the end of the next", "x 1 2-9/5; x unlocked 6; y 5 8-15 shares=x; z 3 7-12; z lost 12", ""},
		{"leaders one after the other", "x 1 2-9/5 #7 leads within; y 1 5-9 #8 leads within", ""},
	})
	judge(t, history.Rules{MaxTTL: 7}, []row{
		{"a key for long", "key 1 ttl=8 name=a key=a", "key with too long a TTL"},
		{"a key for as long as it may", "key 1 ttl=7 name=a key=a; key 1 ttl=100", ""},
	})
	judge(t, history.Rules{MaxTTL: 1, MaxSideTTL: map[string]time.Duration{":queue": 7, ":fence": 9}}, []row{
		{"a key beside a lock for long", "key 1 ttl=8 key={a}:queue; key 2 ttl=9 key={a}:fence", "key with too long a TTL"},
	})
	judge(t, history.Rules{MaxTTL: 7, SetBack: map[int]time.Duration{1: 1}}, []row{
		{"a key whose node's clock was set back", "key 1 ttl=8 name=a key=a; key 1 ttl=8 name=a key=a node=1; key 2 ttl=9 name=a key=a node=1", "key with too long a TTL key with too long a TTL"},
	})
	judge(t, history.Rules{Settled: 8, SettledOn: map[int]time.Duration{1: 5}, Gone: []string{":queue"}}, []row{
		{"a key left behind", "key 5 ttl=7 name=a key=a; key 9 ttl=3 name=a key=a", "key left behind"},
		{"a ticket left behind", "key 5 ttl=7 key={a}:queue; key 9 ttl=3 key={a}:queue; key 9 ttl=3 key={a}:fence", "key left behind"},
		{"left behind on a node that clients have left", "key 5 ttl=7 name=a key=a node=1; key 6 ttl=7 name=a key=a node=2; key 6 ttl=7 name=a key=a node=1; key 7 ttl=2 key={a}:queue node=1", "key left behind key left behind"},
	})
}

func TestOtherNamesAndTermsDoNotMeet(t *testing.T) {
	events := parse("x 1 2-9 #4; y 1 5-9 #3 name=b; x 10 11-15 #5 term=1")
	assert.Empty(t, history.Check(events, history.Rules{}))
	assert.Len(t, history.Terms(events), 3)
}

func TestSeveralNamesAreOneTerm(t *testing.T) {
	terms := history.Terms(parse("x 1 2-9/5 #7 more=b,c"))
	require.Len(t, terms, 1)
	for name, is := range map[string]bool{"a": true, "b": true, "c": true, "d": false} {
		assert.Equal(t, is, terms[0].Of(name), name)
	}
}

func TestLogIsReadAsItWasWritten(t *testing.T) {
	var b bytes.Buffer
	log, kept := history.NewLog(&b), &history.Log{}
	want := parse("x 1 2-9/5 #7 more=b; key 3 ttl=-1 name=a; y 4 5-9/6 permits=3 weight=2; key 10 value=v; o saw 11-12 held v:x@3!")
	for _, e := range want {
		log.Note(e)
		kept.Note(e)
	}
	require.NoError(t, log.Err())
	got, err := history.Read(strings.NewReader(b.String() + `{"at":`))
	require.NoError(t, err)
	assert.Equal(t, want, got)
	assert.Equal(t, want, kept.Events())
	_, err = history.Read(strings.NewReader("{}\nno\n{}\n"))
	require.ErrorContains(t, err, "line 2")
}
