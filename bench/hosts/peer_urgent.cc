// SPDX-License-Identifier: Apache-2.0
//
// One rank of Rondo that times small urgent all-reduces, alone or beside large ones. It takes its
// settings from the environment, and bench/hosts/urgent.py starts it.
//
//   peer_urgent CONTROL
//
// The lines between the driver and a rank: a command of the driver, and the rank's answer.
//
//   (rank, when it has joined)        ready RANK SIZE urgent
//   turn URGENT_BYTES WARM_UP ITERATIONS PAUSE BULK_BYTES
//                                     times BULK_BYTES_PER_SECOND (START END)...
//                                     (nanoseconds of the monotonic clock)
//   rest                              (nothing)
//   quit                              (nothing: the rank ends)
//
// PAUSE: microseconds of sleep before each operation, like a model's other layers. BULK_BYTES: if
// it is not 0, a second thread keeps two all-reduces of this size in flight in the bulk lane.
#include <rondo/communicator.h>

#include <array>
#include <atomic>
#include <chrono>
#include <condition_variable>
#include <cstddef>
#include <exception>
#include <iostream>
#include <mutex>
#include <optional>
#include <sstream>
#include <stdexcept>
#include <thread>
#include <vector>

#include "../peers/control.h"

namespace {

using Clock = std::chrono::steady_clock;
constexpr std::chrono::seconds patience{30};

// Runs all-reduces in the bulk lane on its own thread, two in flight at a time. A rank that wants
// to stop writes 1 to an element, so all ranks see in the same sum that they stop there.
class BulkLoad {
 public:
  BulkLoad(rondo::Communicator& communicator, std::size_t bytes)
      : communicator_(communicator), bytes_(bytes), thread_([this] { run(); }) {}
  ~BulkLoad() { stop(); }

  void wait_until_running() {
    std::unique_lock lock(mutex_);
    if (!changed_.wait_for(lock, patience, [this] { return finished_ >= 2 || failure_; }))
      throw std::runtime_error("bulk operations do not get going");
    if (failure_) std::rethrow_exception(failure_);
  }

  // Stops. Returns bytes of buffers per second, from the end of the first operation to the end of
  // the last measured one. Throws the error of the thread, if there was one.
  double finish() {
    stop();
    if (failure_) std::rethrow_exception(failure_);
    return static_cast<double>((finished_ - 1) * bytes_) /
           std::chrono::duration<double>(last_ - first_).count();
  }

 private:
  void stop() {
    wanted_ = false;
    if (thread_.joinable()) thread_.join();
  }

  void run() {
    try {
      std::array<std::vector<float>, 2> buffers;
      for (auto& buffer : buffers) buffer.assign(bytes_ / sizeof(float), 0.0F);
      std::array<rondo::Work, 2> works;
      const auto start = [&](std::size_t which) {
        buffers[which][0] = wanted_ ? 0.0F : 1.0F;
        const rondo::Buffer buffer = rondo::buffer_of(std::span(buffers[which]));
        works[which] = communicator_.all_reduce(buffer, buffer, rondo::ReduceOp::sum);
      };
      start(0);
      for (std::size_t which = 0;; which = 1 - which) {
        start(1 - which);
        works[which].wait();
        {
          const std::lock_guard lock(mutex_);
          last_ = Clock::now();
          if (finished_++ == 0) first_ = last_;
        }
        changed_.notify_all();
        if (buffers[which][0] == 0) continue;
        works[1 - which].wait();
        return;
      }
    } catch (...) {
      const std::lock_guard lock(mutex_);
      failure_ = std::current_exception();
      changed_.notify_all();
    }
  }

  rondo::Communicator& communicator_;
  const std::size_t bytes_;
  std::atomic<bool> wanted_ = true;
  std::mutex mutex_;
  std::condition_variable changed_;
  std::size_t finished_ = 0;
  std::exception_ptr failure_;
  Clock::time_point first_, last_;
  std::thread thread_;
};

std::int64_t now() {
  return std::chrono::nanoseconds(Clock::now().time_since_epoch()).count();
}

std::string turn(rondo::Communicator& communicator, std::istringstream& arguments) {
  std::size_t bytes = 0, warm_up = 0, iterations = 0, bulk_bytes = 0;
  std::int64_t pause_us = 0;
  if (!(arguments >> bytes >> warm_up >> iterations >> pause_us >> bulk_bytes))
    throw std::invalid_argument("turn: five numbers");
  const std::chrono::microseconds pause(pause_us);
  std::vector<double> values(bytes / sizeof(double)), sums(values.size());
  for (std::size_t i = 0; i < values.size(); ++i)
    values[i] = static_cast<double>(i % 61 + static_cast<std::size_t>(communicator.rank()));
  const int size = communicator.size();
  rondo::OpOptions options;
  options.priority = rondo::Priority::urgent;
  std::optional<BulkLoad> load;
  if (bulk_bytes > 0) load.emplace(communicator, bulk_bytes);
  if (load) load->wait_until_running();
  std::ostringstream times;
  for (std::size_t i = 0; i < warm_up + iterations; ++i) {
    if (pause.count() > 0) std::this_thread::sleep_for(pause);
    communicator.barrier(options).wait();
    const std::int64_t start = now();
    communicator
        .all_reduce(rondo::buffer_of(std::span(values)), rondo::buffer_of(std::span(sums)),
                    rondo::ReduceOp::sum, options)
        .wait();
    if (i >= warm_up) times << ' ' << start << ' ' << now();
    for (std::size_t k = 0; k < sums.size(); ++k)
      if (sums[k] !=
          static_cast<double>(size) * static_cast<double>(k % 61) + size * (size - 1) / 2.0)
        throw std::runtime_error("wrong sum");
  }
  const double bandwidth = load ? load->finish() : 0;
  communicator.barrier(options).wait();  // no rank answers while another is still measuring
  std::ostringstream reply;
  reply << "times " << bandwidth << times.str();
  return reply.str();
}

void handle(rondo::compare::Control& control) {
  rondo::Communicator communicator = rondo::Communicator::connect();
  control.write_line(
      rondo::compare::ready_line(communicator.rank(), communicator.size(), {"urgent"}));
  while (const std::optional<std::string> line = control.read_line()) {
    std::istringstream arguments(*line);
    std::string command;
    arguments >> command;
    if (command == "quit") return;
    if (command == "rest") continue;
    if (command != "turn") throw std::invalid_argument("unknown command: " + *line);
    control.write_line(turn(communicator, arguments));
  }
}

}  // namespace

int main(int argc, char** argv) {
  if (argc != 2) {
    std::cerr << "usage: " << argv[0] << " CONTROL (started by bench/hosts/urgent.py)\n";
    return 2;
  }
  return rondo::compare::run_controlled(argv[1], handle);
}
