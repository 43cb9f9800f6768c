// SPDX-License-Identifier: Apache-2.0
#include "lib/recorder/signal.h"

#include <poll.h>
#include <signal.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <condition_variable>
#include <cstddef>
#include <iterator>
#include <memory>
#include <mutex>
#include <string_view>
#include <thread>
#include <utility>

#include <rondo/error.h>

#include "base/event.h"
#include "base/own_descriptors.h"
#include "base/text.h"
#include "base/thread.h"
#include "lib/settings/environment.h"

namespace rondo::recorder {

// Has the listings of one process. Lives until the process ends, because a handler on another
// thread may be about to write to its descriptor. Two locks: the thread needs only that of the
// list, so life_ may be held while the thread is joined.
class SignalThread {
 public:
  // parent: that of the process that forked this one.
  explicit SignalThread(const SignalThread* parent) : parent_(parent) {
    if (!event_)
      throw Error(Errc::system, "no eventfd for RONDO_DUMP_SIGNAL: " + base::describe_errno(errno));
  }

  SignalListing::Dumps::iterator add(int number, std::function<void()> dump);
  void remove(SignalListing::Dumps::iterator place) noexcept;
  // Async-signal-safe, as is the next. A child that was made without the handlers of fork() has the
  // generation of its parent.
  bool is_here() const noexcept {
    return process_ == ::getpid() && generation_ == base::process_generation();
  }
  void ask() const noexcept { event_.set(); }

 private:
  void run() noexcept;
  void call_all() noexcept;

  const pid_t process_ = ::getpid();
  const unsigned generation_ = base::process_generation();
  [[maybe_unused]] const SignalThread* const parent_;  // leak checkers find it here
  const base::Event event_;
  std::atomic<bool> ending_{false};
  std::mutex life_;  // of the next two, and of the handler
  std::size_t listed_ = 0;
  std::thread thread_;
  std::mutex mutex_;  // of the rest
  std::condition_variable called_;
  SignalListing::Dumps dumps_;
  const std::function<void()>* under_way_ = nullptr;
};

namespace {

constexpr const char* variable_name = "RONDO_DUMP_SIGNAL";

std::atomic<SignalThread*> current{nullptr};

SignalThread& of_this_process() {
  SignalThread* present = current.load();
  if (present != nullptr && present->is_here()) return *present;
  auto fresh = std::make_unique<SignalThread>(present);
  if (current.compare_exchange_strong(present, fresh.get())) return *fresh.release();
  return *present;
}

// The signal and what it did before, under life_; a forked child inherits them with the handler.
int installed_for = 0;  // 0: nothing is installed
struct sigaction earlier {};
// The handler among that, for our own, which may run on a thread at any time.
std::atomic<void (*)(int)> earlier_plain{nullptr};
std::atomic<void (*)(int, siginfo_t*, void*)> earlier_informed{nullptr};

bool has_handler(const struct sigaction& action) noexcept {
  return (action.sa_flags & SA_SIGINFO) != 0 ||
         (action.sa_handler != SIG_DFL && action.sa_handler != SIG_IGN);
}

void handle(int number, siginfo_t* info, void* context) {
  const int error = errno;
  const SignalThread* const thread = current.load();
  if (thread != nullptr && thread->is_here()) thread->ask();
  if (auto* const informed = earlier_informed.load())
    informed(number, info, context);
  else if (auto* const plain = earlier_plain.load())
    plain(number);
  errno = error;
}

bool is_ours(const struct sigaction& action) noexcept {
  return (action.sa_flags & SA_SIGINFO) != 0 && action.sa_sigaction == &handle;
}

// Calls of the program go on after the signal, unless a handler of the program asked for EINTR.
void install(int number) noexcept {
  struct sigaction before {};
  ::sigaction(number, nullptr, &before);
  if (is_ours(before) || (installed_for == number && has_handler(before))) return;
  const bool informed = (before.sa_flags & SA_SIGINFO) != 0;
  earlier = before;
  earlier_informed.store(informed ? before.sa_sigaction : nullptr);
  earlier_plain.store(!informed && has_handler(before) ? before.sa_handler : nullptr);
  struct sigaction action {};
  action.sa_sigaction = &handle;
  action.sa_flags =
      SA_SIGINFO | SA_ONSTACK | (has_handler(before) ? before.sa_flags & SA_RESTART : SA_RESTART);
  action.sa_mask = before.sa_mask;
  ::sigaction(number, &action, nullptr);
  installed_for = number;
}

void put_back() noexcept {
  struct sigaction now {};
  ::sigaction(installed_for, nullptr, &now);
  if (!is_ours(now)) return;
  ::sigaction(installed_for, &earlier, nullptr);
  installed_for = 0;
}

}  // namespace

SignalListing::Dumps::iterator SignalThread::add(int number, std::function<void()> dump) {
  SignalListing::Dumps one;
  one.push_back(std::move(dump));
  const std::lock_guard life(life_);
  if (listed_ == 0) {
    ending_.store(false);
    thread_ = base::start_thread("rondo-dump", [this] { run(); });
    install(number);
  }
  ++listed_;
  const std::lock_guard lock(mutex_);
  dumps_.splice(dumps_.end(), one);
  return std::prev(dumps_.end());
}

void SignalThread::remove(SignalListing::Dumps::iterator place) noexcept {
  {
    std::unique_lock lock(mutex_);
    called_.wait(lock, [&] { return under_way_ != &*place; });
    dumps_.erase(place);
  }
  const std::lock_guard life(life_);
  if (--listed_ != 0) return;
  put_back();
  ending_.store(true);
  event_.set();
  thread_.join();
}

void SignalThread::run() noexcept {
  pollfd asked{event_.descriptor(), POLLIN, 0};
  for (;;) {
    if (::poll(&asked, 1, -1) < 0) continue;
    event_.clear();
    if (ending_.load()) return;
    call_all();
  }
}

// The listing whose function is called stays in the list meanwhile; others may come and go.
void SignalThread::call_all() noexcept {
  std::unique_lock lock(mutex_);
  for (auto one = dumps_.begin(); one != dumps_.end(); ++one) {
    under_way_ = &*one;
    lock.unlock();
    try {
      (*one)();
    } catch (...) {  // no memory: the next signal asks again
    }
    lock.lock();
    under_way_ = nullptr;
    called_.notify_all();
  }
}

std::optional<int> signal_from_environment() {
  const auto value = settings::variable(variable_name);
  if (!value) return std::nullopt;
  std::string_view name = *value;
  if (name.starts_with("SIG")) name.remove_prefix(3);
  if (name == "USR1") return SIGUSR1;
  if (name == "USR2") return SIGUSR2;
  settings::refuse_variable(variable_name, *value, "possible are USR1 and USR2");
}

SignalListing::SignalListing(int number, std::function<void()> dump)
    : thread_(of_this_process()), place_(thread_.add(number, std::move(dump))) {}

SignalListing::~SignalListing() {
  if (thread_.is_here()) thread_.remove(place_);
}

}  // namespace rondo::recorder
