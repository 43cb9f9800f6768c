// SPDX-License-Identifier: Apache-2.0
#include "transports/rdma/device_events.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include <cerrno>
#include <utility>

#include <rondo/error.h>

#include "base/text.h"
#include "transports/rdma/failures.h"

namespace rondo::rdma {

DeviceEvents::Listener::Listener(DeviceEvents& events)
    : events_(events), bell_(::eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK)) {
  if (!bell_) throw Error(Errc::system, fmt::format("eventfd: {}", base::describe_errno(errno)));
  const base::Locked lock(events_.mutex_);
  events_.listeners_.push_back(this);
}

DeviceEvents::Listener::~Listener() {
  if (generation_ != base::process_generation()) return;
  const base::Locked lock(events_.mutex_);
  std::erase(events_.listeners_, this);
}

std::vector<DeviceEvent> DeviceEvents::Listener::take() {
  std::uint64_t rings = 0;
  [[maybe_unused]] const auto got = ::read(bell_.get(), &rings, sizeof rings);
  const base::Locked lock(events_.mutex_);
  return std::exchange(heard_, {});
}

int DeviceEvents::descriptor_of(std::size_t device) const {
  const int events = devices_->all()[device]->context()->async_fd;
  const int flags = ::fcntl(events, F_GETFL);
  if (flags < 0 || ::fcntl(events, F_SETFL, flags | O_NONBLOCK) != 0)
    throw Error(Errc::system, fmt::format("fcntl: {}", base::describe_errno(errno)));
  return events;
}

void DeviceEvents::read(std::size_t device) {
  const Device& one = *devices_->all()[device];
  ibv_async_event event{};
  while (one.verbs().get_async_event(one.context(), &event) == 0) {
    DeviceEvent told{device, 0, 0, describe_event(event.event_type)};
    if (event.event_type == IBV_EVENT_PORT_ERR)
      told.port = static_cast<std::uint8_t>(event.element.port_num);
    if (event.event_type == IBV_EVENT_QP_FATAL || event.event_type == IBV_EVENT_QP_REQ_ERR ||
        event.event_type == IBV_EVENT_QP_ACCESS_ERR)
      told.queue_pair = event.element.qp->qp_num;
    if (!told.what.empty()) pass_on(told);
    // Until then the queue pair cannot be destroyed, nor its number used again.
    one.verbs().ack_async_event(&event);
  }
}

void DeviceEvents::pass_on(const DeviceEvent& event) {
  const base::Locked lock(mutex_);
  for (Listener* const listener : listeners_) {
    listener->heard_.push_back(event);
    const std::uint64_t ring = 1;
    [[maybe_unused]] const auto rung = ::write(listener->bell_.get(), &ring, sizeof ring);
  }
}

}  // namespace rondo::rdma
