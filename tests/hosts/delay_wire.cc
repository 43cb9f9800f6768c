// SPDX-License-Identifier: Apache-2.0
//
// A cable of a given length: two Ethernet interfaces, and what goes into one comes out of the other
// after a fixed time. It stands for the kernel's netem where that is missing.
//
//   delay_wire NAME NAME MICROSECONDS      prints "ready" once both interfaces are there
//
// It needs the right to make interfaces, and runs until it is killed.
#include <fcntl.h>
#include <linux/if.h>
#include <linux/if_tun.h>
#include <poll.h>
#include <sys/ioctl.h>
#include <sys/resource.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <chrono>
#include <cstddef>
#include <cstring>
#include <deque>
#include <exception>
#include <iostream>
#include <string>
#include <system_error>
#include <utility>
#include <vector>

#include "base/file_descriptor.h"

namespace {

using Clock = std::chrono::steady_clock;
using rondo::base::FileDescriptor;

// Frames under way in one direction; beyond that they are lost, as in a real queue. Each has up to
// 64 KiB: the kernel leaves large sends whole (TUN_F_TSO4).
constexpr std::size_t most_under_way = 4096, most_frame = (64 << 10) + 256;

void check(bool fine, const char* what) {
  if (!fine) throw std::system_error(errno, std::generic_category(), what);
}

FileDescriptor open_interface(const std::string& name) {
  FileDescriptor device(::open("/dev/net/tun", O_RDWR | O_NONBLOCK | O_CLOEXEC));
  check(device.get() >= 0, "/dev/net/tun");
  ifreq request{};
  request.ifr_flags = static_cast<short>(IFF_TAP | IFF_NO_PI | IFF_VNET_HDR);
  name.copy(request.ifr_name, IFNAMSIZ - 1);
  check(::ioctl(device.get(), TUNSETIFF, &request) == 0, "TUNSETIFF");
  check(::ioctl(device.get(), TUNSETOFFLOAD, TUN_F_CSUM | TUN_F_TSO4) == 0, "TUNSETOFFLOAD");
  return device;
}

// From one interface to the other.
class Direction {
 public:
  Direction(int from, int to, Clock::duration delay) : from_(from), to_(to), delay_(delay) {}

  void take() {
    for (;;) {
      std::vector<std::byte> frame = empty_frame();
      const ssize_t bytes = ::read(from_, frame.data(), frame.size());
      if (bytes <= 0) {
        spare_.push_back(std::move(frame));
        return;
      }
      frame.resize(static_cast<std::size_t>(bytes));
      if (under_way_.size() < most_under_way)
        under_way_.push_back({Clock::now() + delay_, std::move(frame)});
      else
        spare_.push_back(std::move(frame));
    }
  }
  void give() {
    const auto now = Clock::now();
    while (!under_way_.empty() && under_way_.front().due <= now) {
      // Bytes that the other interface does not take are lost.
      [[maybe_unused]] const ssize_t bytes =
          ::write(to_, under_way_.front().bytes.data(), under_way_.front().bytes.size());
      spare_.push_back(std::move(under_way_.front().bytes));
      under_way_.pop_front();
    }
  }
  Clock::time_point due() const {
    return under_way_.empty() ? Clock::time_point::max() : under_way_.front().due;
  }

 private:
  struct Frame {
    Clock::time_point due;
    std::vector<std::byte> bytes;
  };
  std::vector<std::byte> empty_frame() {
    std::vector<std::byte> frame;
    if (!spare_.empty()) {
      frame = std::move(spare_.back());
      spare_.pop_back();
    }
    frame.resize(most_frame);
    return frame;
  }

  const int from_, to_;
  const Clock::duration delay_;
  std::deque<Frame> under_way_;
  std::vector<std::vector<std::byte>> spare_;
};

[[noreturn]] void carry(int one, int other, Clock::duration delay) {
  Direction there(one, other, delay), back(other, one, delay);
  for (;;) {
    const auto due = std::min(there.due(), back.due());
    timespec left{};
    if (due != Clock::time_point::max()) {
      const auto wait = std::chrono::duration_cast<std::chrono::nanoseconds>(
          std::max(due - Clock::now(), Clock::duration::zero()));
      left = {wait.count() / 1'000'000'000, wait.count() % 1'000'000'000};
    }
    std::array<pollfd, 2> watched{{{one, POLLIN, 0}, {other, POLLIN, 0}}};
    ::ppoll(watched.data(), watched.size(), due == Clock::time_point::max() ? nullptr : &left,
            nullptr);
    there.take();
    back.take();
    there.give();
    back.give();
  }
}

}  // namespace

int main(int count, char** arguments) {
  try {
    if (count != 4) {
      std::cerr << "usage: delay_wire NAME NAME MICROSECONDS\n";
      return 2;
    }
    const FileDescriptor one = open_interface(arguments[1]), other = open_interface(arguments[2]);
    // A cable does not wait for a processor. Without the right to do so it works as it can.
    ::setpriority(PRIO_PROCESS, 0, -5);
    std::cout << "ready" << std::endl;
    carry(one.get(), other.get(), std::chrono::microseconds(std::stol(arguments[3])));
  } catch (const std::exception& error) {
    std::cerr << "delay_wire: " << error.what() << '\n';
    return 1;
  }
}
