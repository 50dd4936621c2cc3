// Tests run as the superuser, to whom nothing is forbidden, in some places.
#ifndef PUSHPULL_TESTS_TESTKIT_ORDINARY_USER_H_
#define PUSHPULL_TESTS_TESTKIT_ORDINARY_USER_H_

#include <sys/types.h>
#include <unistd.h>

#include "gtest/gtest.h"

namespace pushpull {

// Gives up the superuser's rights while it lives.
class OrdinaryUser {
 public:
  OrdinaryUser() : was_(geteuid()) {
    if (was_ == 0) {
      EXPECT_EQ(seteuid(65534), 0);
    }
  }
  ~OrdinaryUser() { EXPECT_EQ(seteuid(was_), 0); }
  OrdinaryUser(const OrdinaryUser&) = delete;
  OrdinaryUser& operator=(const OrdinaryUser&) = delete;

 private:
  const uid_t was_;
};

}  // namespace pushpull

#endif  // PUSHPULL_TESTS_TESTKIT_ORDINARY_USER_H_
