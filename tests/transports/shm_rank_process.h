// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <fcntl.h>
#include <sys/types.h>
#include <sys/wait.h>
#include <unistd.h>

#include <functional>
#include <vector>

#include "catch.h"
#include "shm_helpers.h"
#include "shm_impostor.h"

namespace rondo::testing {

// Rank 1 of two in a process of its own.
class RankProcess {
 public:
  // Starts rank 0's transport and, in the other process, rank 1's. There it calls act, which kills
  // the process.
  RankProcess(transports::Transport& rank0,
              const std::function<void(transports::Transport&)>& act) {
    std::vector<transports::Blob> addresses{rank0.address(), transports::Blob(1024)};
    int pipe[2];
    REQUIRE(::pipe2(pipe, O_CLOEXEC) == 0);
    const base::FileDescriptor from(pipe[0]);
    base::FileDescriptor to(pipe[1]);
    to.keep_in_child();
    process_ = ::fork();
    if (process_ == 0) run(addresses, to.get(), act);
    ::close(to.release());
    const ssize_t length = ::read(from.get(), addresses[1].data(), addresses[1].size());
    REQUIRE(length > 0);
    addresses[1].resize(static_cast<std::size_t>(length));
    rank0.start(addresses, shm_job);
  }
  RankProcess(const RankProcess&) = delete;
  RankProcess& operator=(const RankProcess&) = delete;
  ~RankProcess() { wait(); }

  ::pid_t process() const { return process_; }
  // Until the process is gone.
  void wait() {
    if (!waited_) ::waitpid(process_, nullptr, 0);
    waited_ = true;
  }

 private:
  [[noreturn]] static void run(std::vector<transports::Blob> addresses, int to,
                               const std::function<void(transports::Transport&)>& act) {
    try {
      auto rank1 = shm::make_shm(options_of(1, 2));
      addresses[1] = rank1->address();
      if (::write(to, addresses[1].data(), addresses[1].size()) < 0) ::_exit(1);
      rank1->start(addresses, shm_job);
      act(*rank1);
    } catch (...) {
    }
    ::_exit(1);
  }

  ::pid_t process_ = -1;
  bool waited_ = false;
};

}  // namespace rondo::testing
