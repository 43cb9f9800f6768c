// SPDX-License-Identifier: Apache-2.0
//
// One thread starts the ranks and then sleeps: until a signal, the end of a rank, or output that
// gets labels. The first rank that fails begins the end of all, which grows stronger in stages.
#include "tools/ranks/spawn.h"

#include <fcntl.h>
#include <poll.h>
#include <sys/auxv.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <fmt/format.h>

#include <algorithm>
#include <cerrno>
#include <csignal>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <system_error>

#include "base/file_descriptor.h"
#include "base/text.h"
#include "tools/ranks/child.h"
#include "tools/ranks/private_directory.h"
#include "tools/ranks/signals.h"
#include "tools/shared/exit_status.h"
#include "tools/shared/output.h"
#include "tools/shared/text.h"

namespace rondo::tools {
namespace {

using Clock = std::chrono::steady_clock;
using std::chrono::milliseconds;

constexpr milliseconds kill_after_term{3'000};
// GNU timeout, and a shell that hangs up, send a signal to the process and again to its group.
// Within this time the same signal counts once.
constexpr milliseconds same_wish{1'000};

struct Rank {
  pid_t pid = -1;
  bool running = false;
  base::FileDescriptor process;  // readable when it has ended; none where the system has no pidfds
};

base::FileDescriptor open_process(pid_t pid) {
  return base::FileDescriptor(static_cast<int>(::syscall(SYS_pidfd_open, pid, 0)));
}

std::string signal_name(int signal) {
  const char* name = ::sigabbrev_np(signal);
  return name == nullptr ? fmt::format("signal {}", signal)
                         : fmt::format("signal {} (SIG{})", signal, name);
}

// If hwloc cannot read the machine, fails only where --bind is given; else no rank is bound.
std::vector<base::ProcessorSet> choose_processors(const SpawnOptions& options) {
  try {
    return bind_ranks(load_topology(), base::affinity_mask(), options.ranks, options.binding);
  } catch (const std::system_error& error) {
    if (!options.binding) return {};
    throw UsageError(
        fmt::format("--bind: hwloc cannot find out which processors there are: {}; give "
                    "--bind none",
                    error.what()));
  }
}

// The ranks of one job. The main thread calls run() once, and no other thread runs. A system call
// that fails while ranks are started throws. Failures of ranks are printed and set the exit status.
class Job {
 public:
  explicit Job(const SpawnOptions& options)
      : options_(options), processors_(choose_processors(options)) {}
  int run();

 private:
  bool start_all();
  void handle(const signalfd_siginfo& info);
  void reap();
  void lost_all();
  void ended(int rank, int status);
  void begin_end(int status, milliseconds grace);
  void next_stage();
  void signal_all(int signal);
  void wait_for_events();
  void kill_strays();
  void forward_labels(void (LabelledStream::*how)());
  void lose_output(const OutputLost& lost);
  int running() const { return static_cast<int>(std::ranges::count(ranks_, true, &Rank::running)); }
  std::string running_names() const;

  const SpawnOptions& options_;
  const std::vector<base::ProcessorSet> processors_;  // by rank; empty: no rank is bound
  SignalQueue signals_{SignalQueue::Of::user_and_children};
  DescriptorLimit descriptors_;
  PrivateDirectory directory_;
  std::vector<Rank> ranks_;
  std::vector<LabelledStream> labels_;
  int status_ = 0;       // of the first failure
  int lost_status_ = 0;  // exit status when lines of ranks could not be written
  bool closed_ = false;  // the reader of the lines is gone
  bool ending_ = false;  // a rank has failed or a signal has come
  int passed_on_ = 0;    // the signal that came from outside
  Clock::time_point passed_on_at_;
  int stage_ = 0;  // 0: ranks end by themselves, 1: SIGTERM sent, 2: SIGKILL sent
  Clock::time_point next_ = Clock::time_point::max();  // when the next stage begins
};

bool Job::start_all() {
  const std::string secret = random_secret();
  // All ranks are on this host, so they listen on loopback unless the user chooses an interface.
  const char* chosen = std::getenv("RONDO_INTERFACE");
  const std::string interface = chosen != nullptr && *chosen != 0 ? chosen : "lo";
  for (int rank = 0; rank < options_.ranks; ++rank) {
    Child child = start_child(
        options_.command,
        {{"RONDO_RANK", std::to_string(rank)},
         {"RONDO_SIZE", std::to_string(options_.ranks)},
         {"RONDO_LOCAL_RANK", std::to_string(rank)},
         {"RONDO_LOCAL_SIZE", std::to_string(options_.ranks)},
         {"RONDO_RENDEZVOUS", "file://" + (directory_.path() / "rendezvous").string()},
         {"RONDO_INTERFACE", interface},
         {"RONDO_SECRET", secret},
         {"RONDO_SECRET_FILE", ""}},
        options_.label, descriptors_.before(),
        processors_.empty() ? base::ProcessorSet{} : processors_[static_cast<std::size_t>(rank)]);
    if (child.exec_error != 0) {
      say("{}: cannot start '{}': {}\n", options_.name, options_.command[0],
          std::generic_category().message(child.exec_error));
      begin_end(child.exec_error == ENOENT ? exit_not_found : exit_not_runnable, milliseconds{0});
      return false;
    }
    ranks_.push_back({child.pid, true, open_process(child.pid)});
    if (!options_.label) continue;
    ::fcntl(child.out.get(), F_SETFL, O_NONBLOCK);
    ::fcntl(child.error.get(), F_SETFL, O_NONBLOCK);
    labels_.emplace_back(std::move(child.out), LabelledStream::To::output, rank);
    labels_.emplace_back(std::move(child.error), LabelledStream::To::error, rank);
  }
  return true;
}

std::string Job::running_names() const {
  std::vector<int> running;
  for (std::size_t rank = 0; rank < ranks_.size(); ++rank)
    if (ranks_[rank].running) running.push_back(static_cast<int>(rank));
  return base::list_of_ranks(std::move(running));
}

void Job::signal_all(int signal) {
  for (const Rank& rank : ranks_)
    if (rank.running) ::kill(rank.pid, signal);
}

void Job::begin_end(int status, milliseconds grace) {
  if (status_ == 0) status_ = status;
  if (ending_) return;
  ending_ = true;
  next_ = Clock::now() + grace;
}

void Job::next_stage() {
  if (running() > 0)
    say("{}: {} still running, sending {}\n", options_.name, running_names(),
        stage_ == 0 ? "SIGTERM" : "SIGKILL");
  signal_all(stage_ == 0 ? SIGTERM : SIGKILL);
  ++stage_;
  next_ = stage_ == 1 ? Clock::now() + kill_after_term : Clock::time_point::max();
}

void Job::ended(int rank, int status) {
  ranks_[static_cast<std::size_t>(rank)].running = false;
  const pid_t pid = ranks_[static_cast<std::size_t>(rank)].pid;
  const bool killed = WIFSIGNALED(status);
  const int code = killed ? exit_of_signal(WTERMSIG(status)) : WEXITSTATUS(status);
  if (code == 0) return;
  // After the first failure the others are expected to exit with an error, and a signal that this
  // process sent them is no news either.
  const bool expected =
      killed && (WTERMSIG(status) == passed_on_ || (closed_ && WTERMSIG(status) == SIGPIPE));
  const bool news = killed ? stage_ == 0 && !expected : !options_.explained && !ending_;
  if (news)
    say("{}: rank {} (pid {}) {}\n", options_.name, rank, pid,
        killed ? "was killed by " + signal_name(WTERMSIG(status))
               : fmt::format("exited with status {}", code));
  begin_end(code, options_.grace);
}

void Job::reap() {
  int status = 0;
  pid_t pid;
  while ((pid = ::waitpid(-1, &status, WNOHANG)) > 0)
    for (std::size_t rank = 0; rank < ranks_.size(); ++rank)
      if (ranks_[rank].running && ranks_[rank].pid == pid) ended(static_cast<int>(rank), status);
  if (pid < 0 && errno == ECHILD && running() > 0) lost_all();
}

// waitpid() has no child left, although ranks count as running. Waiting for them would never end.
// Their status is unknown, so the job has failed.
void Job::lost_all() {
  say("{}: {} ended, but the system did not tell with what status\n", options_.name,
      running_names());
  for (Rank& rank : ranks_) rank.running = false;
  begin_end(1, options_.grace);
}

void Job::handle(const signalfd_siginfo& info) {
  const int signal = static_cast<int>(info.ssi_signo);
  if (signal == SIGCHLD) return;
  if (signal == SIGUSR1 || signal == SIGUSR2) return signal_all(signal);
  if (signal == passed_on_ && Clock::now() < passed_on_at_ + same_wish) return;
  if (ending_ && stage_ < 2) {
    stage_ = 1;
    next_stage();
    return;
  }
  // A signal from the terminal has already reached the ranks.
  if (info.ssi_code != SI_KERNEL) signal_all(signal);
  passed_on_ = signal;
  passed_on_at_ = Clock::now();
  begin_end(0, options_.grace);
}

// Where a library has started a thread in this process, SIGCHLD may go there and be lost.
void Job::wait_for_events() {
  std::vector<pollfd> watched{{signals_.descriptor(), POLLIN, 0}};
  for (const Rank& rank : ranks_)
    if (rank.running) watched.push_back({rank.process.get(), POLLIN, 0});
  for (const LabelledStream& stream : labels_)
    if (stream.open()) watched.push_back({stream.descriptor(), POLLIN, 0});
  int timeout = -1;
  if (next_ != Clock::time_point::max())
    timeout = static_cast<int>(
        std::max<long long>(0, std::chrono::ceil<milliseconds>(next_ - Clock::now()).count()));
  ::poll(watched.data(), watched.size(), timeout);
}

void Job::forward_labels(void (LabelledStream::*how)()) {
  for (LabelledStream& stream : labels_) try {
      (stream.*how)();
    } catch (const OutputLost& lost) {
      lose_output(lost);
    }
}

// Without labels a rank would get the error of its own write. With labels it can get SIGPIPE when
// the reader is gone, but not the error of a full disk. A lost line is no reason to end the job:
// the ranks go on, and this process reports the loss at once and in its status.
void Job::lose_output(const OutputLost& lost) {
  if (lost_status_ == 0 && !lost.reader_is_gone())
    say("{}: lines of the ranks are lost: {}\n", options_.name, lost.what());
  lost_status_ = lost.exit_status();
  closed_ = lost.reader_is_gone();
  for (LabelledStream& stream : labels_) {
    if (stream.to() == LabelledStream::To::error) continue;
    if (closed_)
      stream.close();
    else
      stream.discard();
  }
}

// Kills the processes that ranks started and left behind. They are children of this process now,
// because it is their subreaper.
void Job::kill_strays() {
  for (int round = 0; round < 100; ++round) {
    std::ifstream children(fmt::format("/proc/self/task/{}/children", ::getpid()));
    bool found = false;
    for (pid_t pid; children >> pid; found = true) {
      ::kill(pid, SIGKILL);
      ::waitpid(pid, nullptr, 0);
    }
    if (!found) break;
  }
  if (::waitpid(-1, nullptr, WNOHANG) == 0)
    say("{}: ranks left processes behind that still run; without /proc they cannot be found\n",
        options_.name);
}

int Job::run() {
  ::prctl(PR_SET_CHILD_SUBREAPER, 1);
  start_all();
  while (running() > 0) {
    wait_for_events();
    while (const auto info = signals_.take()) handle(*info);
    forward_labels(&LabelledStream::forward);
    reap();
    if (Clock::now() >= next_) next_stage();
  }
  kill_strays();
  forward_labels(&LabelledStream::finish);
  return status_ != 0 ? status_ : lost_status_;
}

}  // namespace

int spawn_ranks(const SpawnOptions& options) {
  return Job(options).run();
}

std::vector<std::string> own_command_line(int argc, char** argv) {
  std::vector<std::string> words(argv, argv + argc);
  if (words.empty()) words.emplace_back("rondo");
  std::error_code unknown;
  const std::filesystem::path here = std::filesystem::read_symlink("/proc/self/exe", unknown);
  if (!unknown) {
    words.front() = here.string();
  } else if (const auto given = ::getauxval(AT_EXECFN); given != 0) {
    // The path that execve was given; the kernel hands over its address as a number.
    const auto* path = reinterpret_cast<const char*>(given);
    words.front() = std::filesystem::absolute(path, unknown).string();
  }
  return words;
}

}  // namespace rondo::tools
