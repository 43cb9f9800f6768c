# SPDX-License-Identifier: Apache-2.0
"""The manifests for Kubernetes in examples/launchers. There is no cluster here: their containers run
as they stand on the hosts of the stage, with the variables that Kubernetes and Kubeflow's operators
set, and their fields are compared with what those document.
Usage: kubernetes_test.py PATH_OF_RONDO [unittest arguments]"""

import json
import pathlib
import shutil
import tempfile
import unittest

from case import VICTIM, LauncherCase, main, one_end
from cases import all_cases
from daemons import lacks_ssh, start_ssh
from stage import EXAMPLES, HERE, alias, skip

try:
    import pods
except ImportError:
    skip("PyYAML is not installed (Debian: python3-yaml)")

DURATION = 300  # seconds that a preflight may take


class Manifests(unittest.TestCase):
    def check_run(self, policy: dict) -> None:
        """A preflight ends, and is not tried again behind the back of who asked."""
        self.assertEqual(policy["backoffLimit"], 0)
        self.assertLessEqual(policy["activeDeadlineSeconds"], DURATION)

    def check_spread(self, template: dict) -> None:
        """One pod on each node."""
        [term] = template["spec"]["affinity"]["podAntiAffinity"]["requiredDuringSchedulingIgnoredDuringExecution"]
        self.assertEqual(term["topologyKey"], "kubernetes.io/hostname")
        self.assertLessEqual(term["labelSelector"]["matchLabels"].items(), template["metadata"]["labels"].items())

    def check_secret(self, template: dict) -> None:
        """Only the user of the container can read the secret, and Rondo looks for it there."""
        container = pods.only_container(template)
        [mount], [volume] = container["volumeMounts"], template["spec"]["volumes"]
        self.assertEqual(mount["name"], volume["name"])
        self.assertEqual(volume["secret"]["defaultMode"], 0o400)
        self.assertIn({"name": "RONDO_SECRET_FILE", "value": mount["mountPath"] + "/secret"}, container["env"])

    def check_waiting(self, template: dict) -> None:
        """Ranks that find no others say so before the system ends them."""
        values = {item["name"]: item["value"] for item in pods.only_container(template)["env"]}
        self.assertLess(int(values["RONDO_CONNECT_DEADLINE"]), DURATION)

    def test_job(self):
        objects = pods.manifests(EXAMPLES / "kubernetes-job.yaml")
        self.assertEqual(set(objects), {"Service", "Job"})
        service, job = objects["Service"], objects["Job"]
        self.assertEqual((service["apiVersion"], job["apiVersion"]), ("v1", "batch/v1"))
        spec, template = job["spec"], job["spec"]["template"]
        self.assertEqual(spec["completionMode"], "Indexed")
        self.check_run(spec)
        self.check_spread(template)
        self.check_secret(template)
        self.check_waiting(template)
        self.assertEqual(template["spec"]["restartPolicy"], "Never")
        values = {item["name"]: item["value"] for item in pods.only_container(template)["env"]}
        self.assertEqual({str(spec["completions"]), str(spec["parallelism"])}, {values["RONDO_SIZE"]})
        self.assertEqual((service["spec"]["clusterIP"], service["spec"]["publishNotReadyAddresses"]), ("None", True))
        self.assertEqual(template["spec"]["subdomain"], service["metadata"]["name"])
        self.assertEqual(values["RONDO_RENDEZVOUS"], f"tcp://{job['metadata']['name']}-0.{service['metadata']['name']}:29500")

    def test_pytorch_job(self):
        objects = pods.manifests(EXAMPLES / "pytorchjob.yaml")
        job = objects["PyTorchJob"]
        self.assertEqual(job["apiVersion"], "kubeflow.org/v1")
        spec = job["spec"]
        self.check_run(spec["runPolicy"])
        # With either of these the variables of the operator do not number single ranks.
        self.assertFalse(spec.keys() & {"nprocPerNode", "elasticPolicy"})
        replicas = spec["pytorchReplicaSpecs"]
        self.assertEqual(set(replicas), {"Master", "Worker"})
        self.assertEqual(replicas["Master"]["replicas"], 1)
        for replica in replicas.values():
            self.assertEqual(replica["restartPolicy"], "Never")
            self.assertEqual(pods.only_container(replica["template"])["name"], "pytorch")
            self.check_spread(replica["template"])
            self.check_secret(replica["template"])
            self.check_waiting(replica["template"])

    def test_mpi_job(self):
        job = pods.manifests(EXAMPLES / "mpijob.yaml")["MPIJob"]
        self.assertEqual(job["apiVersion"], "kubeflow.org/v2beta1")
        spec = job["spec"]
        self.check_run(spec["runPolicy"])
        self.assertEqual((spec["slotsPerWorker"], spec["mpiImplementation"]), (1, "OpenMPI"))
        replicas = spec["mpiReplicaSpecs"]
        self.assertEqual(set(replicas), {"Launcher", "Worker"})
        self.assertEqual(replicas["Launcher"]["replicas"], 1)
        for replica in replicas.values():
            self.assertEqual(replica["restartPolicy"], "Never")
        self.check_spread(replicas["Worker"]["template"])
        self.assertEqual(pods.only_container(replicas["Worker"]["template"])["command"][0], "/usr/sbin/sshd")
        self.assertIn(f" -n {replicas['Worker']['replicas']} ", pods.only_container(replicas["Launcher"]["template"])["command"][-1])


@one_end
class Job(LauncherCase):
    """kubernetes-job.sh with a stand-in for kubectl."""

    def launch(self, size, threshold):
        cluster = pathlib.Path(tempfile.mkdtemp(dir=self.stage.folder))
        run = self.stage.run([EXAMPLES / "kubernetes-job.sh"], RONDO_TEST_CLUSTER=str(cluster), RONDO_TEST_NODES=",".join(self.hosts),
                             RONDO_TEST_CHANGES=json.dumps({"BYTES": size, "MIN_BANDWIDTH": threshold}))
        run.logs.append(cluster / "log-0")
        return run

    def test_passed(self):
        self.assertIn("[pod/rondo-preflight-0-abcde/rondo] # rondo ", self.check_passed())

    def test_missed(self):
        self.assertEqual(self.check_missed()[0], [1])

    def test_killed(self):
        says = rf"(?s)/rondo\] rondo bench: rank 0: .*lost rank {VICTIM}.*rondo-preflight-{VICTIM}-abcde Error node{VICTIM}"
        self.assertEqual(self.check_killed(says=says), [1])


@one_end
class PyTorchJob(LauncherCase):
    """The variables are those of setPodEnv in Kubeflow's training operator."""

    def launch(self, size, threshold):
        job = pods.manifests(EXAMPLES / "pytorchjob.yaml")["PyTorchJob"]
        master = f"{job['metadata']['name']}-master-0"
        alias("node0", master)
        replicas = job["spec"]["pytorchReplicaSpecs"]
        templates = [replica["template"] for kind in ("Master", "Worker") for replica in [replicas[kind]] for _ in range(replica["replicas"])]
        pods.mount_secrets(templates[0])
        run = self.stage.run()
        for rank, (host, template) in enumerate(zip(self.hosts, templates, strict=True)):
            operator = {"MASTER_ADDR": master, "MASTER_PORT": "23456", "WORLD_SIZE": str(len(templates)),
                        "RANK": str(rank), "PET_NPROC_PER_NODE": "auto", "PET_NODE_RANK": str(rank), "PET_NNODES": str(len(templates))}
            run.start(pods.pod(host, template, operator, {"BYTES": size, "MIN_BANDWIDTH": threshold}))
        return run

    def test_passed(self):
        self.check_passed()

    def test_missed(self):
        self.assertEqual(self.check_missed()[0], [1, 1, 1, 1])

    def test_killed(self):
        self.assertEqual(self.check_killed(), [3, 3, -9, 3])


@one_end
@unittest.skipUnless(shutil.which("mpirun.openmpi"), "mpirun.openmpi is not installed (Debian: openmpi-bin)")
class MpiJob(LauncherCase):
    """The launcher's pod with the hostfile and the variables of Kubeflow's MPI operator. How this
    mpirun ends when a rank dies is the business of mpirun_test.py."""

    hosts = [*LauncherCase.hosts, "launcher"]
    ssh = {"OMPI_MCA_plm_rsh_agent": str(HERE / "stand_ins" / "stand-in-ssh")}

    def launch(self, size, threshold):
        hostfile = self.stage.folder / "hostfile"
        names = [f"{host}.rondo-preflight.default.svc" for host in self.hosts[:-1]]
        hostfile.write_text("".join(f"{name} slots=1\n" for name in names))
        for host, name in zip(self.hosts, names):
            alias(host, name)
        template = pods.manifests(EXAMPLES / "mpijob.yaml")["MPIJob"]["spec"]["mpiReplicaSpecs"]["Launcher"]["template"]
        operator = {"K_MPI_JOB_ROLE": "launcher", "OMPI_MCA_orte_keep_fqdn_hostnames": "true", "OMPI_MCA_orte_default_hostfile": str(hostfile)} | self.ssh
        run = self.stage.run()
        run.start(pods.pod("launcher", template, operator, {"BYTES": size, "MIN_BANDWIDTH": threshold}))
        return run

    def test_passed(self):
        self.check_passed()

    def test_missed(self):
        self.assertEqual(self.check_missed()[0], [1])


@unittest.skipUnless(all_cases(), "it starts ssh daemons: RONDO_TEST_CASES=all")
@unittest.skipIf(lacks_ssh(), lacks_ssh())
class MpiJobOverSsh(MpiJob):
    daemons = [start_ssh]
    ssh: dict[str, str] = {}


if __name__ == "__main__":
    main()
