package main

import (
	"testing"

	"github.com/stretchr/testify/require"
)

func newTestLedger(t *testing.T, accounts int) *ledger {
	t.Helper()
	l, err := createLedger(t.TempDir(), accounts)
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, l.close()) })
	return l
}

func TestTransfersOneAfterTheOtherConserveMoney(t *testing.T) {
	l := newTestLedger(t, 3)
	for _, next := range []transfer{
		{from: 0, to: 1, amount: 7, holder: 1},
		{from: 2, to: 1, amount: 3, holder: 2},
		{from: 1, to: 0, amount: 2 * opening, holder: 1},
	} {
		require.NoError(t, next.begin(l))
		require.NoError(t, next.end(l))
	}
	require.NoError(t, l.audit(3))
	for i, want := range []int64{3*opening - 7, 10 - opening, opening - 3} {
		a, err := l.read(i)
		require.NoError(t, err)
		require.Equal(t, account{Balance: want}, a)
	}
	other, err := openLedger(l.path())
	require.NoError(t, err)
	require.NoError(t, other.audit(3))
	require.NoError(t, other.close())
}

func TestTransfersNoticeTheSecondHolderOfAnAccount(t *testing.T) {
	l := newTestLedger(t, 3)
	first, second := transfer{from: 0, to: 1, amount: 1, holder: 1}, transfer{from: 1, to: 2, amount: 1, holder: 2}
	require.NoError(t, first.begin(l))
	require.ErrorIs(t, second.begin(l), errTwoHolders)
	require.NoError(t, first.end(l))
	require.NoError(t, second.begin(l))
	require.ErrorContains(t, l.audit(3), "account 1 is still held by 2")
}

// Two holders that begin at the same moment may both see a free account, because neither has marked it yet. Then the
// later mark overwrites the earlier one, and end must notice it.
func TestTransfersNoticeASecondHolderThatBeganAtTheSameMoment(t *testing.T) {
	l := newTestLedger(t, 2)
	first := transfer{from: 0, to: 1, amount: 1, holder: 1}
	require.NoError(t, first.begin(l))
	require.NoError(t, l.write(1, account{Balance: opening, Holder: 2}))
	require.ErrorIs(t, first.end(l), errTwoHolders)
}

func TestAuditNoticesALostUpdate(t *testing.T) {
	l := newTestLedger(t, 3)
	first, second := transfer{from: 0, to: 1, amount: 5, holder: 1}, transfer{from: 1, to: 2, amount: 5, holder: 2}
	require.NoError(t, first.begin(l))
	require.NoError(t, l.write(1, account{Balance: opening})) // removes the mark of first, so that begin does not notice it
	require.NoError(t, second.begin(l))
	require.NoError(t, second.end(l))
	require.NoError(t, l.write(1, account{Balance: opening - 5, Holder: 1}))
	require.NoError(t, first.end(l))
	require.EqualError(t, l.audit(3), "the accounts hold 3005 in all, want 3000")
}

func TestLedgerThatIsTooShortIsAnError(t *testing.T) {
	l := newTestLedger(t, 1)
	past := transfer{from: 0, to: 1, holder: 1}
	require.Error(t, past.begin(l))
	require.Error(t, past.end(l))
	require.Error(t, l.audit(2))
	_, err := openLedger(l.path() + "-none")
	require.Error(t, err)
}
