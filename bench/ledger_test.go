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
