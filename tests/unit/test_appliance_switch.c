#include "test_appliance_rig.h"
int main(void){return 0;}
