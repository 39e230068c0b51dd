// A member of a share group with franz-go.
//
//	shares BOOTSTRAP GROUP TOPIC implicit|explicit|renew COUNT
//
// Prints a line for each delivery, as ShareMember.java: offset, delivery count, answer. It ends when COUNT records are accepted or rejected.
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
	silent  = 60 * time.Second
	renewed = 6
	pause   = 500 * time.Millisecond
)

func check(what string, err error) {
	if err != nil {
		fmt.Fprintf(os.Stderr, "shares: %s: %v\n", what, err)
		os.Exit(2)
	}
}

func answer(record *kgo.Record, mode string) kgo.AckStatus {
	if mode == "explicit" {
		if record.Offset%3 == 1 && record.DeliveryCount() == 1 {
			return kgo.AckRelease
		}
		if record.Offset%3 == 2 {
			return kgo.AckReject
		}
	}
	return kgo.AckAccept
}

func names(status kgo.AckStatus) string {
	return map[kgo.AckStatus]string{kgo.AckAccept: "ACCEPT", kgo.AckRelease: "RELEASE", kgo.AckReject: "REJECT"}[status]
}

func main() {
	bootstrap, group, topic, mode := os.Args[1], os.Args[2], os.Args[3], os.Args[4]
	left, err := strconv.Atoi(os.Args[5])
	check("count", err)
	client, err := kgo.NewClient(
		kgo.SeedBrokers(bootstrap),
		kgo.ShareGroup(group),
		kgo.ConsumeTopics(topic),
		kgo.ShareAckCallback(func(_ *kgo.Client, results kgo.ShareAckResults) { check("acknowledgement", results.Error()) }),
	)
	check("client", err)
	patience, cancel := context.WithTimeout(context.Background(), silent)
	defer cancel()
	for left > 0 {
		fetches := client.PollFetches(patience)
		for _, failure := range fetches.Errors() {
			check("poll", failure.Err)
		}
		fetches.EachRecord(func(record *kgo.Record) {
			if mode == "renew" {
				for range renewed {
					record.Ack(kgo.AckRenew)
					check("renew", client.FlushAcks(patience))
					time.Sleep(pause)
				}
			}
			status := answer(record, mode)
			if mode != "implicit" {
				record.Ack(status)
			}
			fmt.Println(record.Offset, record.DeliveryCount(), names(status))
			if status != kgo.AckRelease {
				left--
			}
		})
	}
	if mode == "implicit" {
		client.MarkAcks(kgo.AckAccept)
	}
	check("flush", client.FlushAcks(patience))
	client.Close()
}
