// SPDX-License-Identifier: Apache-2.0
#include "lib/settings/launcher.h"

#include "environment_guard.h"

using namespace rondo;
using namespace rondo::tests;
using Catch::Contains;

TEST_CASE("torchrun", "[environment]") {
  const Environment environment{{"RANK", "5"},
                                {"WORLD_SIZE", "8"},
                                {"LOCAL_RANK", "1"},
                                {"MASTER_ADDR", "node0"},
                                {"MASTER_PORT", "29500"},
                                {"LOCAL_WORLD_SIZE", "8"}};
  rendezvous::Place place = rendezvous::resolve_place(Options{});
  CHECK(place.rank == 5);
  CHECK(place.size == 8);
  CHECK(place.url == "tcp://node0:29500");
  CHECK(place.source == "torchrun");
  ::setenv("TORCHELASTIC_USE_AGENT_STORE", "True", 1);
  CHECK(rendezvous::resolve_place(Options{}).url == "tcp://node0:29501");
  ::setenv("MASTER_ADDR", "fd00::2", 1);
  CHECK(rendezvous::resolve_place(Options{}).url == "tcp://[fd00::2]:29501");
  ::setenv("LOCAL_WORLD_SIZE", "4", 1);
  CHECK_THAT(message_of(Errc::authentication),
             Contains("several hosts") && Contains("RONDO_SECRET"));
  ::setenv("RONDO_SECRET", "s", 1);
  CHECK(rendezvous::resolve_place(Options{}).url == "tcp://[fd00::2]:29501");
  ::unsetenv("MASTER_PORT");
  CHECK_THAT(message_of(Errc::invalid_argument), Contains("MASTER_PORT is not"));
  ::setenv("RANK", "8", 1);
  CHECK_THAT(message_of(Errc::invalid_argument),
             Contains("RANK is '8'") && Contains("from 0 to 7"));
}

TEST_CASE("variables of another job do no harm to a place that is complete", "[environment]") {
  const Environment environment{{"RANK", "7"},
                                {"WORLD_SIZE", "4"},
                                {"RONDO_RANK", "1"},
                                {"RONDO_SIZE", "2"},
                                {"RONDO_RENDEZVOUS", "tcp://node0:1234"}};
  CHECK(Options::from_environment().rank == 1);
  CHECK(rendezvous::resolve_place(Options{}).url == "tcp://node0:1234");
  ::unsetenv("RONDO_RENDEZVOUS");
  CHECK_THAT(message_of(Errc::invalid_argument), Contains("RANK is '7'"));
  Options options;
  options.rendezvous = "tcp://b:1";
  CHECK(rendezvous::resolve_place(options).source == "RONDO_RANK");
  MapStore store;
  options = {};
  options.store = &store;
  CHECK(rendezvous::resolve_place(options).rank == 1);
  ::setenv("RONDO_RANK", "0", 1);
  ::setenv("RONDO_SIZE", "1", 1);
  CHECK(rendezvous::resolve_place(Options{}).size == 1);
}

TEST_CASE("torchrun's address is missed only where it is needed", "[environment]") {
  const Environment environment{{"RANK", "1"}, {"WORLD_SIZE", "4"}, {"MASTER_PORT", "none"}};
  CHECK_THAT(message_of(Errc::invalid_argument), Contains("MASTER_PORT is 'none'"));
  ::setenv("MASTER_PORT", "29500", 1);
  CHECK_THAT(message_of(Errc::invalid_argument), Contains("MASTER_ADDR is not"));
  CHECK(Options::from_environment().rank == 1);
  Options options;
  options.rendezvous = "tcp://b:1";
  CHECK(rendezvous::resolve_place(options).rank == 1);
  CHECK(rendezvous::resolve_place(options).url == "tcp://b:1");
}

TEST_CASE("Open MPI on one host needs no configuration", "[environment]") {
  const Environment environment{{"OMPI_COMM_WORLD_RANK", "1"},
                                {"OMPI_COMM_WORLD_SIZE", "4"},
                                {"OMPI_COMM_WORLD_LOCAL_SIZE", "4"},
                                {"PMIX_NAMESPACE", "prterun-vm-71@1/x"}};
  const rendezvous::Place place = rendezvous::resolve_place(Options{});
  CHECK(place.rank == 1);
  CHECK(place.size == 4);
  CHECK(place.source == "Open MPI");
  CHECK(place.url == user_prefix(environment) + "openmpi-prterun-vm-71_1_x-4");
  CHECK(place.this_host_only);
  CHECK(place.secret.size() == 64);
  CHECK(rendezvous::resolve_place(Options{}).secret == place.secret);
  ::setenv("PMIX_NAMESPACE", "another", 1);
  CHECK(rendezvous::resolve_place(Options{}).secret != place.secret);
  ::setenv("RONDO_SECRET", "mine", 1);
  CHECK(rendezvous::resolve_place(Options{}).secret == "mine");
  CHECK_FALSE(rendezvous::resolve_place(Options{}).this_host_only);

  ::setenv("OMPI_COMM_WORLD_LOCAL_SIZE", "2", 1);
  CHECK_THAT(message_of(Errc::invalid_argument), Contains("Open MPI runs ranks on several hosts") &&
                                                     Contains("RONDO_RENDEZVOUS=tcp://HOST:PORT") &&
                                                     Contains("-x RONDO_SECRET"));
  ::setenv("RONDO_RENDEZVOUS", "tcp://node0:1234", 1);
  CHECK(rendezvous::resolve_place(Options{}).url == "tcp://node0:1234");
}

TEST_CASE("MPICH and Intel MPI on one host need no configuration", "[environment]") {
  const Environment environment{{"PMI_RANK", "2"}, {"PMI_SIZE", "3"}, {"MPI_LOCALNRANKS", "3"}};
  const rendezvous::Place place = rendezvous::resolve_place(Options{});
  CHECK(place.rank == 2);
  CHECK(place.size == 3);
  CHECK(place.source == "MPICH or Intel MPI");
  CHECK_THAT(place.url, Catch::StartsWith(user_prefix(environment) + "hydra-"));
  CHECK(rendezvous::resolve_place(Options{}).url == place.url);
  CHECK(place.this_host_only);
  ::setenv("MPI_LOCALNRANKS", "1", 1);
  CHECK_THAT(message_of(Errc::invalid_argument), Contains("-genvlist"));
  ::unsetenv("MPI_LOCALNRANKS");
  CHECK(rendezvous::resolve_place(Options{}).rank == 2);
}

TEST_CASE("Slurm", "[environment]") {
  const Environment environment{{"SLURM_PROCID", "1"},         {"SLURM_NTASKS", "2"},
                                {"SLURM_STEP_NODELIST", "n7"}, {"SLURM_STEP_NUM_NODES", "1"},
                                {"SLURM_JOB_ID", "4711"},      {"SLURM_STEP_ID", "3"}};
  CHECK(rendezvous::resolve_place(Options{}).url == user_prefix(environment) + "slurm-4711-3-2");
  CHECK(rendezvous::resolve_place(Options{}).source == "Slurm");
  // srun with an MPI program that uses PMI.
  ::setenv("PMI_RANK", "0", 1);
  ::setenv("PMI_SIZE", "9", 1);
  CHECK(rendezvous::resolve_place(Options{}).source == "Slurm");
  // Hydra, which has started its daemons with srun.
  ::setenv("MPI_LOCALNRANKS", "9", 1);
  CHECK(rendezvous::resolve_place(Options{}).source == "MPICH or Intel MPI");
  ::unsetenv("PMI_RANK");

  ::setenv("SLURM_STEP_NODELIST", "node[007-009,12],other", 1);
  ::setenv("SLURM_STEP_NUM_NODES", "5", 1);
  CHECK_THAT(message_of(Errc::authentication), Contains("RONDO_SECRET"));
  ::setenv("RONDO_SECRET", "s", 1);
  const std::string url = rendezvous::resolve_place(Options{}).url;
  CHECK_THAT(url, Catch::StartsWith("tcp://node007:"));
  CHECK(rendezvous::resolve_place(Options{}).url == url);
  ::setenv("SLURM_STEP_ID", "4", 1);
  CHECK(rendezvous::resolve_place(Options{}).url != url);

  ::unsetenv("PMI_SIZE");
  // A batch script itself is no task.
  ::unsetenv("SLURM_STEP_NODELIST");
  ::unsetenv("SLURM_STEP_ID");
  CHECK(rendezvous::resolve_place(Options{}).source == "alone");
}

TEST_CASE("launchers that contradict each other", "[environment]") {
  // The shell had RANK and WORLD_SIZE. Without a check each process of mpirun would be alone.
  const Environment environment{{"RANK", "0"},
                                {"WORLD_SIZE", "1"},
                                {"OMPI_COMM_WORLD_RANK", "1"},
                                {"OMPI_COMM_WORLD_SIZE", "2"},
                                {"OMPI_COMM_WORLD_LOCAL_SIZE", "2"}};
  CHECK_THAT(message_of(Errc::invalid_argument), Contains("torchrun say rank 0 of 1") &&
                                                     Contains("Open MPI say rank 1 of 2") &&
                                                     Contains("env -u RANK -u WORLD_SIZE"));
  // Each process of mpirun has started three ranks.
  ::setenv("MASTER_ADDR", "a", 1);
  ::setenv("MASTER_PORT", "1", 1);
  ::setenv("RANK", "5", 1);
  ::setenv("WORLD_SIZE", "6", 1);
  CHECK(rendezvous::resolve_place(Options{}).url == "tcp://a:1");
  CHECK(rendezvous::resolve_place(Options{}).rank == 5);
  // This rank would belong to another process of mpirun.
  ::setenv("RANK", "2", 1);
  CHECK_THAT(message_of(Errc::invalid_argument), Contains("rank 2 of 6"));
  ::setenv("RANK", "5", 1);
  ::setenv("WORLD_SIZE", "7", 1);
  CHECK_THAT(message_of(Errc::invalid_argument), Contains("rank 5 of 7"));
  ::setenv("TORCHELASTIC_RUN_ID", "none", 1);
  CHECK(rendezvous::resolve_place(Options{}).size == 7);
  ::unsetenv("TORCHELASTIC_RUN_ID");
  // A script has set RANK and WORLD_SIZE from those of Open MPI, and no place to meet.
  ::setenv("RANK", "1", 1);
  ::setenv("WORLD_SIZE", "2", 1);
  ::unsetenv("MASTER_PORT");
  CHECK(rendezvous::resolve_place(Options{}).source == "Open MPI");
  ::unsetenv("RANK");
  ::unsetenv("WORLD_SIZE");
  ::setenv("PMI_RANK", "1", 1);
  ::setenv("PMI_SIZE", "2", 1);
  ::setenv("MPI_LOCALNRANKS", "2", 1);
  CHECK(rendezvous::resolve_place(Options{}).rank == 1);
  ::setenv("PMI_RANK", "0", 1);
  CHECK_THAT(
      message_of(Errc::invalid_argument),
      Contains("Open MPI say rank 1 of 2") && Contains("MPICH or Intel MPI say rank 0 of 2"));
  ::setenv("RONDO_RANK", "0", 1);
  ::setenv("RONDO_SIZE", "1", 1);
  CHECK(rendezvous::resolve_place(Options{}).size == 1);
}

TEST_CASE("a launcher that is not known is not taken for none", "[environment]") {
  const char* const name = GENERATE("PMIX_RANK", "FLUX_TASK_RANK", "PALS_RANKID",
                                    "JSM_NAMESPACE_RANK", "JOB_COMPLETION_INDEX");
  const Environment environment{{name, "3"}};
  CHECK_THAT(message_of(Errc::invalid_argument),
             Contains(std::string(name) + " is '3'") && Contains("RONDO_SIZE"));
  ::setenv("RONDO_RANK", "3", 1);
  ::setenv("RONDO_SIZE", "4", 1);
  CHECK_THAT(message_of(Errc::invalid_argument), Contains("does not know where the ranks meet"));
  ::setenv("RONDO_RENDEZVOUS", "tcp://a:1", 1);
  CHECK(rendezvous::resolve_place(Options{}).rank == 3);
}

TEST_CASE("half of a launcher's variables is a mistake, not a rank alone", "[environment]") {
  {
    const Environment environment{{"RANK", "1"}, {"MASTER_ADDR", "127.0.0.1"}};
    CHECK_THAT(message_of(Errc::invalid_argument),
               Contains("RANK is '1'") && Contains("WORLD_SIZE is not set"));
    ::setenv("RONDO_RANK", "0", 1);
    ::setenv("RONDO_SIZE", "1", 1);
    CHECK(message_of(Errc::invalid_argument) == "no error");
  }
  {
    const Environment environment{{"WORLD_SIZE", "4"}};
    CHECK_THAT(message_of(Errc::invalid_argument), Contains("RANK is not set"));
    ::setenv("WORLD_SIZE", "1", 1);
    CHECK(rendezvous::resolve_place(Options{}).source == "alone");
  }
  const Environment environment{{"PMI_RANK", "0"}};
  CHECK_THAT(message_of(Errc::invalid_argument), Contains("PMI_SIZE is not set"));
}

TEST_CASE("host lists", "[environment]") {
  CHECK(settings::first_host("n1") == "n1");
  CHECK(settings::first_host("n1,n2") == "n1");
  CHECK(settings::first_host("n[1-4]") == "n1");
  CHECK(settings::first_host("n[01,03-4],m") == "n01");
  CHECK(settings::first_host("rack[2-3]node[7-9]") == "rack2node7");
  CHECK(settings::first_host("broken[1") == "broken");
}
