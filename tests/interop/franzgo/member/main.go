// Joins a group with the consumer protocol (KIP-848), and prints what its rebalance callbacks get.
//
//	member [-regex] [-instance ID] ADDRESS GROUP SUBSCRIPTION
//
// SUBSCRIPTION is a topic, or with -regex a regular expression. Each callback prints a line of JSON, such as
// {"event": "assigned", "partitions": ["t-0", "t-1"]}. The member leaves when its standard input ends.
package main

import (
	"context"
	"encoding/json"
	"flag"
	"fmt"
	"io"
	"os"
	"sync"

	"github.com/twmb/franz-go/pkg/kgo"
)

func main() {
	regex := flag.Bool("regex", false, "SUBSCRIPTION is a regular expression")
	instance := flag.String("instance", "", "group.instance.id of a static member")
	flag.Parse()
	if err := run(*regex, *instance, flag.Arg(0), flag.Arg(1), flag.Arg(2)); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

func run(regex bool, instance, address, group, subscription string) error {
	var lock sync.Mutex
	says := func(event string) func(context.Context, *kgo.Client, map[string][]int32) {
		return func(_ context.Context, _ *kgo.Client, owned map[string][]int32) {
			partitions := []string{}
			for topic, numbers := range owned {
				for _, number := range numbers {
					partitions = append(partitions, fmt.Sprintf("%s-%d", topic, number))
				}
			}
			lock.Lock()
			defer lock.Unlock()
			json.NewEncoder(os.Stdout).Encode(map[string]any{"event": event, "partitions": partitions})
		}
	}
	options := []kgo.Opt{
		kgo.SeedBrokers(address),
		kgo.ConsumerGroup(group),
		kgo.ConsumeTopics(subscription),
		kgo.ServerSideBalancer(),
		kgo.Balancers(kgo.StickyBalancer()), // `uniform` on the broker
		kgo.OnPartitionsAssigned(says("assigned")),
		kgo.OnPartitionsRevoked(says("revoked")),
		kgo.OnPartitionsLost(says("lost")),
	}
	if regex {
		options = append(options, kgo.ConsumeRegex())
	}
	if instance != "" {
		options = append(options, kgo.InstanceID(instance))
	}
	client, err := kgo.NewClient(options...)
	if err != nil {
		return err
	}
	ctx, cancel := context.WithCancel(context.Background())
	go func() {
		io.Copy(io.Discard, os.Stdin)
		cancel()
	}()
	for ctx.Err() == nil {
		fetches := client.PollFetches(ctx)
		if err := fetches.Err(); err != nil && ctx.Err() == nil {
			fmt.Fprintln(os.Stderr, err) // the broker may be down: the client goes on
		}
	}
	client.Close()
	return nil
}
