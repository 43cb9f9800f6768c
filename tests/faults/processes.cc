// SPDX-License-Identifier: Apache-2.0
#include "processes.h"

#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <spawn.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstdlib>
#include <filesystem>
#include <stdexcept>

extern char** environ;

namespace rondo {

namespace {

std::pair<base::FileDescriptor, base::FileDescriptor> make_pipe() {
  int ends[2];
  if (::pipe2(ends, O_CLOEXEC) != 0) throw std::runtime_error("pipe2");
  return {base::FileDescriptor(ends[0]), base::FileDescriptor(ends[1])};
}

std::vector<std::string> merged(const std::map<std::string, std::string>& extra) {
  std::map<std::string, std::string> all;
  for (char** entry = environ; *entry != nullptr; ++entry) {
    const std::string text = *entry;
    all[text.substr(0, text.find('='))] = text.substr(std::min(text.size(), text.find('=') + 1));
  }
  for (const auto& [name, value] : extra) all[name] = value;
  std::vector<std::string> lines;
  for (const auto& [name, value] : all) lines.push_back(name + "=" + value);
  return lines;
}

std::vector<char*> pointers(std::vector<std::string>& texts) {
  std::vector<char*> result;
  for (std::string& text : texts) result.push_back(text.data());
  result.push_back(nullptr);
  return result;
}

}  // namespace

Process::Process(const std::vector<std::string>& arguments,
                 const std::map<std::string, std::string>& environment) {
  auto [child_in, own_out] = make_pipe();
  auto [own_in, child_out] = make_pipe();
  posix_spawn_file_actions_t actions;
  posix_spawn_file_actions_init(&actions);
  posix_spawn_file_actions_adddup2(&actions, child_in.get(), STDIN_FILENO);
  posix_spawn_file_actions_adddup2(&actions, child_out.get(), STDOUT_FILENO);
  std::vector<std::string> words = arguments, variables = merged(environment);
  pid_t pid = -1;
  const int status = ::posix_spawn(&pid, words[0].c_str(), &actions, nullptr,
                                   pointers(words).data(), pointers(variables).data());
  posix_spawn_file_actions_destroy(&actions);
  if (status != 0) throw std::runtime_error("cannot start " + words[0]);
  pid_ = base::FileDescriptor(static_cast<int>(::syscall(SYS_pidfd_open, pid, 0)));
  input_ = std::move(own_out);
  output_ = std::move(own_in);
}

Process::~Process() {
  if (!pid_) return;
  signal(SIGKILL);
  wait(base::Clock::now() + std::chrono::seconds{10});
}

void Process::signal(int number) const {
  ::syscall(SYS_pidfd_send_signal, pid_.get(), number, nullptr, 0);
}

std::string Process::line(base::TimePoint until) {
  for (;;) {
    if (const auto end = text_.find('\n'); end != std::string::npos) {
      const std::string result = text_.substr(0, end);
      text_.erase(0, end + 1);
      return result;
    }
    const base::TimePoint now = base::Clock::now();
    if (now >= until) return {};
    pollfd watch{output_.get(), POLLIN, 0};
    if (::poll(&watch, 1, base::poll_timeout(now, until)) <= 0) continue;
    char buffer[4096];
    const ssize_t got = ::read(output_.get(), buffer, sizeof buffer);
    if (got <= 0) return {};
    text_.append(buffer, static_cast<std::size_t>(got));
  }
}

int Process::wait(base::TimePoint until) {
  for (;;) {
    const base::TimePoint now = base::Clock::now();
    pollfd watch{pid_.get(), POLLIN, 0};
    if (::poll(&watch, 1, base::poll_timeout(now, until)) > 0) break;
    if (now >= until) return -1;
  }
  siginfo_t info{};
  if (::waitid(P_PIDFD, static_cast<id_t>(pid_.get()), &info, WEXITED) != 0) return -1;
  pid_.reset();
  return info.si_code == CLD_EXITED ? info.si_status : 128 + info.si_status;
}

ScratchDirectory::ScratchDirectory() {
  std::string path = std::filesystem::temp_directory_path() / "rondo-test-XXXXXX";
  if (::mkdtemp(path.data()) == nullptr) throw std::runtime_error("mkdtemp " + path);
  path_ = path;
}

ScratchDirectory::~ScratchDirectory() {
  std::error_code ignored;
  std::filesystem::remove_all(path_, ignored);
}

}  // namespace rondo
