// Copies records from one topic to another exactly once, with franz-go's GroupTransactSession.
//
//	copier ADDRESS SOURCE TARGET NAME COUNT
//
// NAME is the group and the transactional id. Every third transaction is aborted: the session then rewinds, and its
// records are read again. Prints how many transactions were committed and aborted, as JSON.
package main

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"strconv"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"
)

func main() {
	if err := run(os.Args[1], os.Args[2], os.Args[3], os.Args[4], os.Args[5]); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

func run(address, source, target, name, count string) error {
	wanted, err := strconv.Atoi(count)
	if err != nil {
		return err
	}
	session, err := kgo.NewGroupTransactSession(
		kgo.SeedBrokers(address),
		kgo.DefaultProduceTopic(target),
		kgo.TransactionalID(name),
		kgo.ConsumerGroup(name),
		kgo.ConsumeTopics(source),
		kgo.FetchIsolationLevel(kgo.ReadCommitted()),
		kgo.ConsumeResetOffset(kgo.NewOffset().AtStart()),
		kgo.RequireStableFetchOffsets(),
	)
	if err != nil {
		return err
	}
	defer session.Close()
	ctx, cancel := context.WithTimeout(context.Background(), 120*time.Second)
	defer cancel()

	copied, committed, aborted := 0, 0, 0
	for copied < wanted {
		fetches := session.PollRecords(ctx, 70)
		if err := fetches.Err(); err != nil {
			return err
		}
		records := fetches.Records()
		if len(records) == 0 {
			continue
		}
		if err := session.Begin(); err != nil {
			return err
		}
		promise := kgo.AbortingFirstErrPromise(session.Client())
		for _, record := range records {
			session.Produce(ctx, &kgo.Record{Value: record.Value}, promise.Promise())
		}
		// Before the decision, so that an aborted transaction has records in the log.
		produced := promise.Err()
		wish := kgo.TransactionEndTry((committed+aborted)%3 != 2 && produced == nil)
		done, err := session.End(ctx, wish)
		if err != nil {
			return err
		}
		if done {
			committed++
			copied += len(records)
		} else {
			aborted++
		}
	}
	return json.NewEncoder(os.Stdout).Encode(map[string]int{"committed": committed, "aborted": aborted})
}
