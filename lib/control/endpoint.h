// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <poll.h>

#include <algorithm>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include <rondo/error.h>

#include "base/thread.h"
#include "lib/control/control.h"
#include "lib/control/thread.h"

namespace rondo::control {

// Sends and reads what is possible without waiting. Gives each message to `take`, a function for
// each type. A message that is not valid ends the stream.
template <class Take>
void exchange(wire::Stream& stream, const Take& take) {
  stream.write();
  stream.read();
  while (const auto frame = stream.take_frame()) {
    const auto message = wire::decode(frame->type, frame->payload);
    if (!message) return stream.end("it sent a control message that is not valid");
    std::visit(take, *message);
  }
}

// One rank's end of the control plane: its thread, which sleeps until a command or a message comes.
// `End` says what this rank does there, on that thread alone:
//     watch()       adds a pollfd for each connection, without a descriptor if that has ended
//     listen_to()   reads what has come over the connection with this index
//     handle()      does what a command says, one function for each
//     turn()        does what is due; the thread then sleeps until due()
//     finish()      sends what is left, at the end
//     tell_alone()  without a thread: tells the others of the failure, returns what counts
//     too_late()    why connect() fails if rank 0 does not say how it ends
template <class End>
class Endpoint final : public Control {
 public:
  template <class... Arguments>
  explicit Endpoint(Arguments... arguments) : end_(answers_, std::move(arguments)...) {
    try {
      thread_ = base::start_thread("rondo-control", [this] { run(); });
    } catch (const Error& error) {
      const operation::Failure failure = end_.tell_alone(error.what());
      throw Error(failure.code, failure.cause);
    }
  }
  ~Endpoint() override {
    queue_.post(StopCommand{});
    thread_.join();
  }

  void start(ControlClient& client) override { queue_.post(StartCommand{&client}); }
  void report(const operation::Failure& failure) override {
    queue_.post(wire::ReportMessage{failure});
  }
  void report_deadline(Priority lane, std::uint64_t operation, nanoseconds deadline,
                       const std::string& what) override {
    queue_.post(wire::DeadlineMessage{
        lane, operation, static_cast<std::uint64_t>(std::max<std::int64_t>(0, deadline.count())),
        what});
  }
  void report_stall(Priority lane, std::uint64_t operation) override {
    queue_.post(wire::DeadlineMessage{lane, operation, 0, {}});
  }
  void report_slow(Priority lane, std::uint64_t operation, nanoseconds waited) override {
    queue_.post(wire::DeadlineMessage{
        lane, operation, static_cast<std::uint64_t>(waited.count()), {}, true});
  }
  void publish(const PlanConstants& constants) override {
    queue_.post(wire::ConstantsMessage{constants});
  }
  std::optional<PlanConstants> await_constants(base::TimePoint until) override {
    return answers_.constants.await(until).value_or(std::nullopt);
  }
  std::optional<operation::Failure> await_ready(base::TimePoint until) override {
    queue_.post(ReadyCommand{until});
    if (auto outcome = answers_.ready.await(base::after(until, ready_grace))) return *outcome;
    return operation::Failure{Errc::deadline_exceeded, end_.too_late(), -1, {0}};
  }
  std::optional<operation::Failure> await_failure(base::TimePoint until) override {
    return answers_.ready.wait_until(until).value_or(std::nullopt);
  }
  void leave(const std::uint64_t (&finished)[lane_count], base::TimePoint until) override {
    LeaveCommand command{{}, until};
    std::ranges::copy(finished, command.finished);
    queue_.post(command);
    answers_.left.wait_until(until);
  }

 private:
  // How long after its deadline a rank still waits for rank 0 to say how connect() ends.
  static constexpr milliseconds ready_grace{1'000};

  void run() {
    std::vector<pollfd> entries;
    end_.watch(entries);
    // Messages may have come right after the records.
    for (std::size_t i = 0; i < entries.size(); ++i) end_.listen_to(i);
    for (end_.turn(); !stopped_; end_.turn()) {
      entries.assign(1, {queue_.descriptor(), POLLIN, 0});
      end_.watch(entries);
      const base::TimePoint due = end_.due();
      const int timeout =
          due == base::TimePoint::max() ? -1 : base::poll_timeout(base::Clock::now(), due);
      if (::poll(entries.data(), entries.size(), timeout) < 0) continue;
      for (std::size_t i = 1; i < entries.size(); ++i)
        if (entries[i].revents != 0) end_.listen_to(i - 1);
      for (const Command& command : queue_.take_all())
        std::visit([this](const auto& what) { this->handle(what); }, command);
    }
    end_.finish();
  }

  void handle(const StopCommand&) { stopped_ = true; }
  template <class What>
  void handle(const What& command) {
    end_.handle(command);
  }

  CommandQueue queue_;
  Answers answers_;
  End end_;  // only the control thread uses it, as stopped_
  bool stopped_ = false;
  std::thread thread_;  // the last member: it uses all others
};

}  // namespace rondo::control
