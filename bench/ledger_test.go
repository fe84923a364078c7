package main

import (
	"testing"

	"github.com/stretchr/testify/require"
)

func newTestLedger(t *testing.T, accounts int) *ledger {
	l, err := createLedger(t.TempDir(), accounts)
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, l.close()) })
	return l
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
