// SPDX-License-Identifier: Apache-2.0
#include "tools/ranks/child.h"

#include <fcntl.h>
#include <sched.h>
#include <sys/prctl.h>
#include <sys/random.h>
#include <sys/wait.h>
#include <unistd.h>

#include <fmt/format.h>

#include <array>
#include <cerrno>
#include <csignal>
#include <span>
#include <string_view>
#include <system_error>

#include "tools/shared/exit_status.h"
#include "tools/shared/output.h"

namespace rondo::tools {
namespace {

[[noreturn]] void refuse(const char* call) {
  throw std::system_error(errno, std::generic_category(), call);
}

struct Pipe {
  base::FileDescriptor read, write;
};

Pipe make_pipe() {
  int ends[2];
  if (::pipe2(ends, O_CLOEXEC) != 0) refuse("pipe2");
  return {base::FileDescriptor(ends[0]), base::FileDescriptor(ends[1])};
}

std::vector<std::string> changed_environment(
    const std::vector<std::pair<std::string, std::string>>& changes) {
  std::vector<std::string> result;
  for (char** entry = environ; *entry != nullptr; ++entry) {
    const std::string_view text = *entry;
    const std::string_view name = text.substr(0, text.find('='));
    bool changed = false;
    for (const auto& change : changes) changed = changed || change.first == name;
    if (!changed) result.emplace_back(text);
  }
  for (const auto& [name, value] : changes)
    if (!value.empty()) result.push_back(fmt::format("{}={}", name, value));
  return result;
}

std::vector<char*> pointers(const std::vector<std::string>& texts) {
  std::vector<char*> result;
  result.reserve(texts.size() + 1);
  for (const std::string& text : texts) result.push_back(const_cast<char*>(text.c_str()));
  result.push_back(nullptr);
  return result;
}

struct ChildSetup {
  char* const* arguments;
  char* const* environment;
  pid_t parent;
  const rlimit* descriptors;
  std::span<const unsigned long> processors;  // as the kernel takes them; empty: not bound
  int error_pipe, out, error;                 // out and error: -1 to keep those of the parent
};

// Runs in the child between fork and exec. It must not allocate or take a lock: another thread of
// the parent may have held one at the fork.
[[noreturn]] void become(const ChildSetup& setup) {
  ::prctl(PR_SET_PDEATHSIG, SIGKILL);
  if (::getppid() != setup.parent) ::_exit(exit_of_signal(SIGKILL));
  sigset_t none;
  ::sigemptyset(&none);
  ::sigprocmask(SIG_SETMASK, &none, nullptr);
  ::setrlimit(RLIMIT_NOFILE, setup.descriptors);
  if (!setup.processors.empty())
    ::sched_setaffinity(0, setup.processors.size_bytes(),
                        reinterpret_cast<const cpu_set_t*>(setup.processors.data()));
  if (setup.out >= 0) ::dup2(setup.out, STDOUT_FILENO);
  if (setup.error >= 0) ::dup2(setup.error, STDERR_FILENO);
  ::execvpe(setup.arguments[0], setup.arguments, setup.environment);
  const int cause = errno;
  [[maybe_unused]] const auto written = ::write(setup.error_pipe, &cause, sizeof cause);
  ::_exit(exit_not_found);
}

// Returns 0 when the program runs: then exec closed the pipe, which ends without a byte.
int read_exec_error(int descriptor) {
  int cause = 0;
  ssize_t got;
  do got = ::read(descriptor, &cause, sizeof cause);
  while (got < 0 && errno == EINTR);
  return got == static_cast<ssize_t>(sizeof cause) ? cause : 0;
}

constexpr std::size_t longest_line = std::size_t{64} << 10;

}  // namespace

std::string random_secret() {
  std::array<unsigned char, 32> bytes{};
  if (::getrandom(bytes.data(), bytes.size(), 0) != static_cast<ssize_t>(bytes.size()))
    refuse("getrandom");
  std::string text;
  for (const unsigned char byte : bytes) text += fmt::format("{:02x}", byte);
  return text;
}

Child start_child(const std::vector<std::string>& command,
                  const std::vector<std::pair<std::string, std::string>>& changes, bool capture,
                  const rlimit& descriptors, const base::ProcessorSet& processors) {
  const std::vector<std::string> environment = changed_environment(changes);
  const std::vector<char*> arguments = pointers(command), variables = pointers(environment);
  const std::vector<unsigned long> mask = base::kernel_mask(processors);
  Pipe failure = make_pipe();
  Pipe out = capture ? make_pipe() : Pipe{}, error = capture ? make_pipe() : Pipe{};
  const ChildSetup setup{
      arguments.data(),    variables.data(), ::getpid(),       &descriptors, mask,
      failure.write.get(), out.write.get(),  error.write.get()};
  for (base::FileDescriptor* const end : {&failure.write, &out.write, &error.write})
    end->keep_in_child();
  Child child;
  child.pid = ::fork();
  if (child.pid < 0) refuse("fork");
  if (child.pid == 0) become(setup);
  failure.write.reset();
  child.exec_error = read_exec_error(failure.read.get());
  if (child.exec_error != 0) ::waitpid(child.pid, nullptr, 0);
  child.out = std::move(out.read);
  child.error = std::move(error.read);
  return child;
}

void LabelledStream::write_line(std::string_view line) {
  if (discards_) return;
  const std::string text = fmt::format("[{}] {}\n", rank_, line);
  if (to_ == To::output)
    print_text(text);
  else
    say_text(text);
}

void LabelledStream::write_lines() {
  std::size_t begin = 0;
  for (std::size_t end; (end = pending_.find('\n', begin)) != std::string::npos; begin = end + 1)
    write_line(std::string_view(pending_).substr(begin, end - begin));
  pending_.erase(0, begin);
  if (pending_.size() < longest_line && (open() || pending_.empty())) return;
  write_line(pending_);
  pending_.clear();
}

void LabelledStream::forward() {
  std::array<char, 16 << 10> chunk;
  while (open()) {
    const ssize_t got = ::read(from_.get(), chunk.data(), chunk.size());
    if (got < 0 && errno == EINTR) continue;
    if (got < 0 && errno == EAGAIN) break;
    if (got <= 0) from_.reset();
    if (got > 0) pending_.append(chunk.data(), static_cast<std::size_t>(got));
    write_lines();
  }
  if (to_ == To::output && !discards_) flush_output();
}

void LabelledStream::close() {
  from_.reset();
  pending_.clear();
  discards_ = true;
}

void LabelledStream::discard() {
  pending_.clear();
  discards_ = true;
}

void LabelledStream::finish() {
  forward();
  from_.reset();
  write_lines();
  if (to_ == To::output && !discards_) flush_output();
}

}  // namespace rondo::tools
