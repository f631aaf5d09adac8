// A provisioner of directories on the Go library for provisioners of volumes, to be measured beside
// examples/hostpath-provisioner. It is for that alone: it trusts every path and every PersistentVolume.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"path/filepath"

	v1 "k8s.io/api/core/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/clientcmd"
	"sigs.k8s.io/sig-storage-lib-external-provisioner/v13/controller"
)

const (
	name     = "example.com/hostpath"
	identity = "hostPathProvisionerIdentity"
)

type directories struct{ root, node string }

func (d directories) Provision(_ context.Context, asked controller.ProvisionOptions) (*v1.PersistentVolume, controller.ProvisioningState, error) {
	path := filepath.Join(d.root, asked.PVName)
	if err := os.MkdirAll(path, 0o770); err != nil {
		return nil, controller.ProvisioningFinished, err
	}
	volume := &v1.PersistentVolume{}
	volume.Name = asked.PVName
	volume.Annotations = map[string]string{identity: d.node}
	volume.Spec = v1.PersistentVolumeSpec{
		PersistentVolumeReclaimPolicy: *asked.StorageClass.ReclaimPolicy,
		AccessModes:                   asked.PVC.Spec.AccessModes,
		Capacity:                      v1.ResourceList{v1.ResourceStorage: asked.PVC.Spec.Resources.Requests[v1.ResourceStorage]},
		PersistentVolumeSource:        v1.PersistentVolumeSource{HostPath: &v1.HostPathVolumeSource{Path: path}},
	}
	return volume, controller.ProvisioningFinished, nil
}

func (d directories) Delete(_ context.Context, volume *v1.PersistentVolume) error {
	switch node, known := volume.Annotations[identity]; {
	case !known:
		return errors.New("the PersistentVolume has no annotation " + identity)
	case node != d.node:
		return &controller.IgnoredError{Reason: "the directory is on node " + node}
	}
	return os.RemoveAll(filepath.Join(d.root, volume.Name))
}

func main() {
	root := flag.String("pv-dir", "", "the directory in which each volume is a directory")
	threads := flag.Int("worker-threads", controller.DefaultThreadiness, "how many volumes to work on at the same time")
	qps := flag.Float64("kube-api-qps", 0, "requests a second; 0 for the client's own limit, below 0 for none")
	flag.Parse()
	if err := run(*root, *threads, float32(*qps)); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

func run(root string, threads int, qps float32) error {
	config, err := clientcmd.BuildConfigFromFlags("", os.Getenv("KUBECONFIG"))
	if err != nil {
		return err
	}
	config.QPS = qps
	client, err := kubernetes.NewForConfig(config)
	if err != nil {
		return err
	}
	ctx := context.Background()
	// With the finalizer, as examples/hostpath-provisioner has it: without it a PersistentVolume that somebody
	// deletes leaves its directory.
	controller.NewProvisionController(ctx, client, name, directories{root, os.Getenv("NODE_NAME")},
		controller.Threadiness(threads), controller.AddFinalizer(true)).Run(ctx)
	return nil
}
