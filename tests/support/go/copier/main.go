// Copies a topic to another one in transactions of franz-go, with the offsets of a group, and aborts every third transaction.
//
//	copier BROKER INPUT OUTPUT GROUP TRANSACTIONAL_ID COUNT
//
// It ends when COUNT records are copied in committed transactions, and prints the numbers of commits and aborts.
package main

import (
	"context"
	"fmt"
	"os"
	"strconv"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"
)

const (
	patience      = 90 * time.Second
	recordsAtOnce = 20
)

func check(err error) {
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

func main() {
	broker, input, output, group, transactionalID := os.Args[1], os.Args[2], os.Args[3], os.Args[4], os.Args[5]
	count, err := strconv.Atoi(os.Args[6])
	check(err)
	session, err := kgo.NewGroupTransactSession(
		kgo.SeedBrokers(broker),
		kgo.TransactionalID(transactionalID),
		kgo.ConsumerGroup(group),
		kgo.ConsumeTopics(input),
		kgo.ConsumeResetOffset(kgo.NewOffset().AtStart()),
		kgo.FetchIsolationLevel(kgo.ReadCommitted()),
		kgo.RequireStableFetchOffsets(),
		kgo.DefaultProduceTopic(output),
	)
	check(err)
	defer session.Close()
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	commits, aborts := 0, 0
	for copied := 0; copied < count; {
		fetches := session.PollRecords(ctx, recordsAtOnce)
		check(fetches.Err())
		check(session.Begin())
		fetches.EachRecord(func(record *kgo.Record) {
			session.Produce(ctx, &kgo.Record{Key: record.Key, Value: record.Value}, nil)
		})
		check(session.Client().Flush(ctx)) // or what is aborted would not even be sent
		committed, err := session.End(ctx, kgo.TransactionEndTry((commits+aborts)%3 != 2))
		check(err)
		if committed {
			commits++
			copied += fetches.NumRecords()
		} else {
			aborts++
		}
	}
	fmt.Println(commits, aborts)
}
