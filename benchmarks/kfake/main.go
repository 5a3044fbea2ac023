// kfake's broker, for `python -m benchmarks.turns`: main PORT [FOLDER]
//
// Without a folder it keeps everything in memory; with one it writes there, and syncs each write.
package main

import (
	"fmt"
	"os"
	"os/signal"
	"strconv"
	"syscall"
	"time"

	"github.com/twmb/franz-go/pkg/kfake"
)

func main() {
	port, err := strconv.Atoi(os.Args[1])
	if err != nil {
		panic(err)
	}
	options := []kfake.Opt{
		kfake.NumBrokers(1),
		kfake.Ports(port),
		kfake.GroupMaxSessionTimeout(time.Hour),
		kfake.BrokerConfigs(map[string]string{"group.initial.rebalance.delay.ms": "0"}),
	}
	if len(os.Args) > 2 {
		options = append(options, kfake.DataDir(os.Args[2]), kfake.SyncWrites())
	}
	cluster, err := kfake.NewCluster(options...)
	if err != nil {
		panic(err)
	}
	fmt.Println("ready")
	ended := make(chan os.Signal, 1)
	signal.Notify(ended, syscall.SIGTERM)
	<-ended
	cluster.Close()
}
