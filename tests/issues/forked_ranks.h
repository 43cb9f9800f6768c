// SPDX-License-Identifier: Apache-2.0
//
// Ranks as processes that are forked from the test. What they find wrong they write to standard
// error.
#pragma once

#include <grp.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstdio>
#include <exception>
#include <functional>
#include <vector>

namespace rondo::testing {

// In a child process: the exit status is 0 when the function returns true, and 1 when it throws.
inline pid_t start_process(const std::function<bool()>& function) {
  const pid_t child = ::fork();
  if (child != 0) return child;
  int status = 1;
  try {
    status = function() ? 0 : 2;
  } catch (const std::exception& error) {
    std::fprintf(stderr, "process %d: %s\n", static_cast<int>(::getpid()), error.what());
  }
  ::_exit(status);
}

// The exit status, or 128 and the signal.
inline int status_of(pid_t child) {
  int status = 0;
  if (::waitpid(child, &status, 0) != child) return -1;
  return WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
}

// function(rank) in one process for each rank; their exit statuses.
inline std::vector<int> run_forked(int size, const std::function<bool(int)>& function) {
  std::vector<pid_t> children;
  for (int rank = 0; rank < size; ++rank)
    children.push_back(start_process([&, rank] { return function(rank); }));
  std::vector<int> statuses;
  for (const pid_t child : children) statuses.push_back(status_of(child));
  return statuses;
}

// The limits of an ordinary user hold for this process from now on. False where that cannot be had.
inline bool become_ordinary() {
  constexpr unsigned nobody = 65534;
  if (::geteuid() != 0) return true;
  // First a user whom nobody else is: some of these limits count what all processes of a user have.
  for (const unsigned user : {200'000u + static_cast<unsigned>(::getpid()), nobody})
    if (::setgroups(0, nullptr) == 0 && ::setresgid(user, user, user) == 0 &&
        ::setresuid(user, user, user) == 0)
      return true;
  return false;
}

}  // namespace rondo::testing
