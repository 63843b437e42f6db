"""Facts of the vocabulary o200k_base that `bounds` uses: some of its tokens, and the most tokens a character can take.

Every line states facts of the vocabulary, each checked by ``tests/properties/test_bounds.py``. Words and signs were
chosen by their rank in the vocabulary and their frequency in Python's own documentation; any choice is sound, a longer
one is tighter. Source of the facts: the vocabulary of openai/tiktoken, MIT (``turnlog_vocabulary``).
"""

from __future__ import annotations

WORDS = """\
the to is of for and in list this if type get be that resource or aws it with not as we describe by an from
string are value name allow action class ec on file return create effect can arn version python default object
all com will data path use set any only error no when so none schema sid function used true param service which
returns one role key but tag at github code ignore have str instance method condition module you id see update
values optional line group date access may import check false request license like user source policy self case
delete context parse given has text first dict py other config int equals types number new model field account
permissions add node test document pop example using extra was args its must call do argument amazon tags names
base each there same into arguments configuration then more event response read exception files lambda also log
match attribute statement parameter run command bucket time called whether need tuple some start usage defaults
before non result format bytes input don directory here count network docs current they message does item after
parameters client defined graph than without put requires options items security io build copyright where note
table logs html end single empty stream support rule because groups print query instead header attributes up
these token re keys org info operation work make route reference principal style def just provided cache bool
state such copy expression show target package application them pass form passed project instances level body
fields custom events output metadata found option dist via valid order index variable raise open already
definition server interface pattern content since either would control under functions block func validation
been information stack strings length out language include objects status core always find two generate returned
environment dictionary latest part remove try required foo lines process integer want size raises mode write
alias characters attr special app specific details full last encoding both batch endpoint software based root
requests api definitions prefix handle execution character handler next manager point task search connection
local keyword job location created now url literal element arg raised http profile generated gateway what spec
results classes session named change pull validate tree description json about implementation parser
distribution entry original max avoid invalid matches resources union modules left organizations multiple added
additional different template headers console runtime being library resolver except your contains present image
report supported namespace per range properties exists float most comment stop works between system every
sequence mapping while cover during override skip zone cases within filename load main region init right windows
even managed operations parent actions release cannot sys services help calls map record over null still
standard could through color including matching rules bar our secret how expr convert connect public domain
validator back else generic dev cluster once issue internal above socket host tests agent never transfer simple
private enable uses address permission sorted keep strategy way backup extension settings install regex modify
future filter until ref send container identity word loop metric parsed cloud section replace array nodes my
pool store flag property thread unicode tokens common width numbers global exceptions complete warning binary
ensure queue link enum buffer protocol sets associated another platform snapshot existing nested checks running
auto assert missing meth allowed those own syntax collection var raw logging plugin nothing built register eks
identifier web position label removed deprecated yet responses paths second exist top operator actually proxy
pre hash exit typed done were define below currently frame apply generator window maximum lists later hook
tables examples limit too elements expected long included conditions scope terms changes dir script close final
misc extensions checking os assignment registry messages free title database reserved obj provider many allows
provide unless maker least callback failure well unique us fragment made inside byte disable fail launch look
changed users boolean calling logic linked email space async auth member split sub zero meta bit contents
display bound certificate explicit actual port thing something shape widget known serialization escape column
repository anything sure wrapper connections rather yield spaces references resolve wrap enabled child know
regular transform flow backend keywords post initial old comments wait hello representation docker setting safe
previous real take equal mark strict memory seconds metrics written doc shell ll parts points channel fixed
testing imports extended commands failed static fix notice implement abstract association annotation watch multi
entries stored analysis flags scheme sort caller step entity helper place lock sync execute iterator normal
offset en push patch compute handling rights upload models correct compatible cookie env total basic codec
constructor compile decode double processing charset git multipart short tasks profiles invoke jobs rich better
op exc registered cause distributed encode external catalog times summary extract len hub progress page whole
runs share individual payload team force generation general logger min sent writing strip retry dependency makes
cached visit credentials symbol theme compare unknown construct reason draw pair lower off comparison structure
program gets things requested starting sources direct leading forward organization plain again detect around
break factory closed view join plugins selection kind grant db handles perform lib merge unix owner append
component params origin members fast constraints char enter streams notifications segment export random very
positive includes media go feature less exact verify states fixture let due marker mean pipeline produce layer
clear compiler side interfaces visitor ast reading lex complex topic performance reset copies inspect master ve
filters require continue ses containers txt dynamic storage children chain wrapped zip unit virtual systems
words rest track notification machine adds debug give save cancel download converted collections initialize
temporary operators letter usually express migration trace render restore src prompt constant ram links upper
select password blocks really though modified down collect prevent addresses delivery mac won management click
native updated decl utilities associate authentication best insert formatter checked year sign infer wheel
device screen th de con st al pro ne se tr he le ex un ch pr la cl su pl sh ar el me ad ab res te im dis cont et
em man es est na am ro gr inter col void sp const da pe comp ob die del stat er bl van fe para who his ver pos
af br kn reg act ser rec ac co ap met fr lo av had val sc dr rel loc fl java ke inform person ed ng rem car gu
sk inst arr ge sm mon cr she si il hand mod dat opt dec sol product good bus sl high ext art sup cal much ho ou
mo years play cas fin day sin great ins fa home did num online cap sit ce design world week book mit think
business cent rep mat ha po pat super ni develop life follow care mu vol vi oper expect mar intern site sem ide
sw net pay qui au exp dan von game conf fun dep fact cu ta ret say market term cert ti android plus month offer
err ben ann love come ba std cost eng few pod ja company stand head feel enc mem health experience lot ca imp
mag ir small ki protect consider review days important little hum dos three water expl va interest room website
big ol power li hard catch plan family success got sam struct red chang area gen hot har util social contact
echo turn bed able dest anal looking material dig ask video personal grow mal dom products money price ident law
nov za mi ing await lat nil today mach blog working nu door lead making far course research ur away moment cell
light sum div easy past four mind along begin od throw house ten protected kw perfect cur large bi why win
certain low learn dies students ut thought amount neg hat live having inc esc land tool talk mor cond height
clean mis wat ok card often bad problem getting deal community cred mass please quick night tal ever story
features author prob question country cook face uint press alt study city player major others games button hold
prec stay favor news font throws hours miss pie nam friend focus represent row walk pick period development move
ago offers doing pack sym questions typ music human started tw pred temp tell hope cy box strong ges front tax
film series inf heart fall respect bring choose eu friends history phone pet anim btn age million fit article ot
uk exam aux addition near tim prop hi nd black perm ep went customer engine pen sel early weight dim answer idea
cut received suggest fi training switch taking center gi seen internet among lang wonder prior impact natural
rate loss sec brand background percent half sig selected pi living travel sites foot claim dog potential fire
staff white five ill todo conv ts ord paper mir taken contract trying tech bill refer az areas active quite
student border soon tom almost board modern fan era tab flex credit office third bank todos fill bin mid ready
msg ways ib recommend risk reviews tar digital increase hit song mobile production bag lie happy choice matter
fo recent books wanted subs ru players coming req pretty desc higher published official purchase gas sun sound
round sale party prefer touch arch nice ci six kr pain sell weeks clients menu images held drive learning hy
outside international worth upon located solution computer confirm reach nt leave ei feed san transport speed
ground legal ul assist national late average education nature materials ball norm imag cha icon paint proper ip
excellent chat death chance cross deep activity wish seek cool activities wide band nan consult wrong remember
slot looks practice movie star growth discover ability tan favorite ton floor margin charge levels daily score
equipment tools ai abs prices roll effective concept trust pros sense train alert pages projects aspect gold km
lu mention views rob category oh picture bottom verb road commit sleep photo parents solid lost hour trip smart
green diff dark cov tmp led driver plans hands mm cos fine countries fresh capital syn piece cat ideal ini fat
shop primary finish warm oc bak worked prime edit dead ye mount former cm stress direction pub payment scale
distance mb effects summer stuff solutions sport applications stage conduct camera drop counter login fair img
partner align interesting respond basis padding places eyes depend fully commercial purpose wall vector surface
mix eg construction pow fn thinking lag slow difference physical sans cast editor rates intent cookies carry
tips blue giving degree lab limited released paid kal budget dry mul middle spot videos posts moving sometimes
sender mail maybe dump sat soft sample prod vs devices planning pin prev adjust hop rank campaign browser anti
admin username damage panel sed pictures micro arm serve healthy tip cards trade layout vec largest saved grid
articles iter traditional balance bat writer monitor components fu overall greater sql agree fabric instr expand
colors rev lots conn detail serial shipping ty mask ps eye reader js reports audio guid central retr completed
adapt edge thank scene bonus dialog wind science farm ea eat cells visual bot pad wo race figure incl wire
spread identify listen resp forms station mp dont ub builder gain burn manage ee finished cmd thanks fear aim
nor trial radio secure friendly although lit vu fetch listed connected mission lev finding reflect cv cold ov
challenge sb ahead opening controller matrix apart schedule dispatch journal gone ud posted alloc factor wild
artist permit critical truth ship sweet cheap shot transaction flat coffee experiment orders poor cant leader
rid lose welcome updates adding inner fee tail luck trail pieces movement nat older
"""
"""Each is one token: alone, after a space, capitalised, and both; at most two after another ASCII character."""

SPACED_WORDS = """\
https boto should iam documentation glue errors otherwise boundary kms methods specified available pytest
decimal iterable versions their callable doesn following provides classifier hypothesis pragma noqa annotations
variables possible lexer containing needed typing setup means might compatibility graphql directly whitespace
issues programming signature subclass datetime parsing useful timeout implemented packages produced against
kwargs coverage itself contain annotated apache policies decorator behavior encoded shared etc aliases takes
assume directories volume expressions sage determine equivalent marketplace targets tuples directive traceback
explicitly turtle branch repr isn pip similar ecs schemas negative needs corresponding terminal urllib relative
shall www dependencies however specification automatically patterns attrs necessary deadline ignored supports
setuptools contributor associations sns supplied licensed ipv cls fails typer accept transit derivative firewall
subject installed configurations creates recovery quoted defs endpoints trailing requirement encryption applied
inference subclasses subscription paginator buckets imported pairs underlying everything fallback exclude odb
considered partial scaling lookup literals positional representing whose arbitrary configured automation
returning attempt agreement appropriate related warnings waiter probably represents waf specify integers ones
exactly lattice suffix separate matched indicates packaging executed creating handled according legacy archive
followed particular abc attach iteration stdout longer various processed builtin happen newline across replaced
gateways distribute subnet implements algorithm resolved contribution omitted appear partition records
distributions immediately tracer lifecycle limiter subtype people said differ him going extends href fut meet
quality understand seem enjoy govern treat together several enough says become comes np discuss minutes months
relations someone popular came professional companies customers took beautiful regard building relationship
technology believe receive simply entire everyone difficult further yourself marketing financial problems
designed fem significant effort likely told especially deliver knowledge approach couple concern shows treatment
anyone asked medical behind easily ideas opportunity throughout seems till affect variety quickly programs saw
lives tend improve recently amazing finally demand didn goal decision attention essential unsigned situation
goes benefits consist highly costs gives myself providing sizeof requirements completely guide meeting serious
safety themselves helps successful printf interested elif definitely vehicle huge certainly obtain measure
developed decided involved reported pressure towards pm spend undefined shown gave attack assess straight became
helpful saying steps understanding began reduce tried supply advice beginning regarding growing decor wants
comfortable spirit looked turned offered ctx responsible meaning truly extremely minimum easier correspond
placeholder protection knew increased opportunities compared studies spent alone broad offering teams increasing
announced brought vast rooms goals occur relax harm families benefit population implied beyond powerful highest
factors nearly communication talking reasons evidence voice lack guard hundred technical particularly guess
surround aren threat wrote earlier waiting temperature boost helping guy director moved generally capacity
relevant rac annual larger efficient minute federal readonly interview happened advantage slight journey remain
traffic applicable
"""
"""Each is one token after a space."""

CAPITALS = """\
WITH AND API SIGN BOX TODO JSON URL RIGHT LEFT AWS THE LICENSE HTTP MARK ANY AST RFC LIGHT BSD NOT XXX DOWN FOR
END BLOCK ASCII FORM XML UTF HTML NOTE ONE DEVICE LINE ISO GET SSL CLI USE ARN OTHER START OUT MIT INCLUDING ABC
GNU FROM SPACE DOT BUT NAME UTC TLS EVENT PLUS NULL TEXT URI ACTION PATH EOF DATA POST ACL FULL LOW DELETE
QUESTION UUID LESS RPC THIS FILE ERROR STOP BREAK INFO ZERO OPTIONS IAM ZIP SDK CSS ALL RETURN HEAD DEFAULT
GROUP PUT SHA CPU VALUE README FINAL LINK UNIT TYPE INDEX DST SQL HTTPS DNS STRING MAX KEY SECTION CRT TXT
SPECIAL BAR LOSS SET VERSION RGB GUI SHORT DEBUG WARNING CMD SELECT CENT TCP RED AAA GREEN ROOT NEW DOM SNS LIST
BEGIN GMT FLOW SDL TAB ETH SVG WAY CHE ETA ARE PATCH POP CONNECT COMP STREAM STANDARD DOS INT ABI FIELD YYYY CRC
IDE NONE GPL TITLE ERA
"""
"""As `WORDS`, in this one form."""

AFFIXED = """\
"A "The "This "description "https "id "name "path "title "type "url %s 'M 'type (Base (arg (cls (ctx (data (e (f
(item (key (msg (name (node (obj (other (path (r (result (s (schema (self (str (t (text (type (value (x -Z
-index -lang -z .add .amazonaws .append .args .body .com .compile .config .copy .core .create .data .debug
.dumps .error .errors .extend .format .from .g .get .group .html .id .io .is .items .join .line .lower .match
.name .node .org .parse .parser .path .pop .py .read .region .replace .set .split .start .startswith .state
.status .to .type .update .utils .value .values .version .write /docs /github /latest /x :param =False =None
=True =self @property [Any [T [a [i [int [key [name [self [str \\b \\d \\n \\s \\u \\x _add _alias _all _arg _args
_backend _base _block _body _by _bytes _cache _call _check _class _code _config _configuration _context _count
_data _default _definition _dict _dir _error _errors _event _expr _field _fields _file _filename _for _format
_from _func _function _future _get _group _groups _handler _hash _header _headers _id _identifier _ids _in
_index _info _init _input _instance _int _internal _is _item _items _json _key _keys _kwargs _len _length _line
_lines _list _map _match _medium _method _mode _model _module _name _names _new _node _number _object _of _on
_only _op _options _or _param _parameters _params _parse _path _policy _prefix _repr _request _resource
_response _result _results _schema _set _settings _size _skin _source _spec _start _state _status _str _stream
_string _style _table _tag _tags _task _template _text _time _to _token _type _types _url _validator _value
_values _var _version _width _with {name n't I'm It's I've Don't That's What's We're There's ~don't ~it's ~I'm
~you're ~It's ~can't ~doesn't ~didn't ~I've ~that's ~isn't ~you'll ~won't ~there's ~we're ~I'll ~wasn't ~I'd
~they're ~you've ~he's ~Don't ~couldn't ~That's ~we'll ~aren't ~haven't ~we've ~wouldn't ~what's ~world's ~she's
~There's ~you'd ~We're ~You'll ~let's ~He's ~shouldn't ~hasn't ~company's ~Let's ~today's ~Here's ~We'll ~year's
~We've ~You're ~i'm ~user's ~one's
"""
"""Each is one token."""

SIGNS = (
    '\t\t\nA\t\nA\t   A\r\nA\r\n\r\nA \n\nA \r\nA  \nA    \nA        \nA !=A ""A """A "")A ""),A "",A'
    ' "(A "("A "()A ")A ")"A "))A "),A ")[A ",A ","A ":A ":"A "::A "[A "["A "\\A "\\"A "\\"'
    '"A "\\",A "\\(A "\\\\A "\\\\"A "]A "{A "{\\"A "{{A "{}A "}A ${A &&A \'./A (\nA (!A ("A ("\\A ($A '
    "((A (((A ((((A (()A ()A ())A (),A ():A (,A (:A (::A ([A ([[A ([]A (\\A ({A )\nA )(A ))A ),A ),\nA ):A );\nA )[A "
    '){A *\nA *)A **A */A */\nA */\n\nA */\r\nA +\nA +=A ,"A ,""A ,,A ,[A --A ->A ...A ...\n\nA /*A /**\nA //A ///'
    'A />\nA :"A :",A :(A :)A :,A ::A :::A :::::A ::::::::A :=A :]A </A <<A <=A ==A ===A =>A >=A [\nA ["A [\'A [(A '
    '[,A [:A [[A [["A [[[A [[]A []A [](A [])A [],A [][]A [{A [{"A [{}A \\"A \\""A \\(A \\\\A ])A ],A ],\nA ][A ]'
    ']A __A {\nA {\n\nA {\r\nA {"A {(A {:A {[A {\\A {{A {{{A {}A {}",A {})A {},A {}\\A ||A }\nA }\n\nA }\r\nA }\r\n'
    '\r\nA })A })\nA })(A }))A }),A }):A });\nA });\n\nA },A },\nA }:A };\nA }\\A }]A }}A }}"A!\nA!\n\nA!--A"\nA"'
    '\n\nA"",A"":A"(A")A")\nA")(A"))A")))A")),A"),A").A"):A");\nA");\n\nA");\r\nA")[A")]A"){A")}'
    'A",A",\nA","A","","A","\\A",(A",[A",{A".A"/A":A":"A":"","A":[A":["A":[]A":{"A";\nA'
    '";\n\nA">A">\nA"></A"[A"\\A"]A"](A"])A"]))A"]),A"],A"]:A"][A"]["A"]]A"{A"}A"})A"},A"},{"A'
    "\"}}A${A'\nA')A')\nA').A');\nA',A',\nA','A'.A':A';\nA';\n\nA']A(\nA(\"A(\"\"A(\"\"\"A(\"\")A(\"\"))A(\"\",A(\"(A"
    '("("A(",A(","A(",",A(":A("[A("\\A("\\"A("\\\\A("{A("{}A($A(&A(\'A(("A(()A(([A(({A()A()\nA()\n\nA('
    ')"A()",A()(A())A())\nA()))A())))A()),A());\nA())[A()){A(),A(),\nA(),"A()->A().A():A();A();\nA();\n\nA();\r\nA'
    '()[A()["A()\\A()]A()],A()][A(){A(){\nA()}A()},A(:A(:,A(:,:,A(::A([A(["A([(A([[A([\\A([]A([],A([{A(\\A(\\"A(_A'
    '({A({\nA({"A({},A)\nA)\n\nA)\r\nA)"A)")A)",A)":A)(A)("A)((A)(((A))\nA))(A)))),A))),A)),A)):A));\nA))[A)){A'
    '),A),\nA),"A),(A).A).\nA).\n\nA):A):\nA):(A)::A);A);\nA);\n\nA);\r\nA);\r\n\r\nA)[A)["A)\\A)]A)])A)],A)][A){A)'
    '{\nA)}A)},A)}}A)}}"A**\nA*/A++)A,\nA,\n\nA,\r\nA,"A,",A,"\\A,(A,)A,),A,:A,:)A,:),A,:,A,:,:A,[A,\\A,\\"A,{A-'
    '>A.\nA.\n\nA.\r\nA."A.,A...\nA...\n\nA../A../../A./A._A/*A/**\nA//\n//A:\nA:\n\nA:\r\nA:"A:",A:(A:)A:,A://A::'
    '{A:[A:["A:[[A:\\A:\\"A:\\\\A:]A:],A:{A:{}A;\nA;\n\nA;\r\nA;\r\n\r\nA</A<?A="A=\'A=>A={A>\nA>\n\nA>\r\nA>(A><A>'
    '</A?\nA?\n\nA["A[\'A[(A[((A[,A[,]A[:A[:,A[:,:,A[:]A[\\A[]A[]"A[](A[])A[]):A[],A[][A[][]A[]{A[]{"A[]}A[{A\\"A'
    '\\""A\\"",A\\")A\\",A\\",\\A\\",\\"A\\":A\\":\\"A\\":{\\"A\\"\\A\\"]A\\(A\\,A\\:A\\[A\\\\"A]\nA'
    ']\n\nA]"A]",A](A]()A])A])\nA])(A]))A])))A])),A]),A]):A]);\nA])[A])]A],A],\nA],"A],[A].A]:A];\nA][A]["A][:A]['
    ']A]\\A]\\\\A]])A]],A]][A]{A]}A]}"A]},A{\nA{\r\nA{"A{:A{\\A{\\"A{}A{}",A{})A{},A{}\\A{}{A}\nA}\n\nA}\r\nA}\r'
    '\n\r\nA}"A}")A}",A}(A})A})(A}))A}),A});\nA},A},\nA},"A},{A},{"A}:A}:{A};\nA};\n\nA}[A}\\A}\\"A}\\\\A}]A}],'
    'A}{A}}"A}},A}}\\A}}{{'
)
"""Runs without letters or digits, each one token; an "A" stands between two."""

FOREIGN_PAIRS = """\
bq gk gq jv jz kq kz lq nq qf qg qj qk qv qz rj tq wq wz xg xj xk xq xv xw yq zj zq zv Aq Bf Bq Bv Bz Cj Ck Cq
Cw Cz Dg Dk Dq Eo Ew Ff Fh Fj Fq Fv Fz Gd Gf Gg Gk Gm Gq Gv Gx Gz Hc Hf Hh Hj Hk Hn Hq Ih Iu Jb Jc Jd Jf Jg Jj
Jk Jm Jp Jq Jr Jt Jv Jw Jx Jz Kc Kf Kj Kk Kp Kq Kx Kz Lh Lk Lq Lr Lw Lx Lz Nf Nn Nq Nw Oa Oe Oq Pj Pp Pq Pz Qb
Qd Qe Qf Qh Qj Qk Qm Qn Qp Qq Qv Qw Qx Qy Qz Rj Rk Rr Rz Sg Sx Tg Tj Tn Tq Tt Tz Ue Uj Uo Uq Uu Vb Vd Vf Vg Vh
Vj Vn Vq Vt Vv Vw Vx Wb Wc Wf Wg Wj Wk Wl Wm Wn Wq Wv Ww Wz Xb Xc Xf Xg Xh Xj Xk Xl Xn Xo Xq Xr Xv Xw Xx Xy Xz
Yb Yc Yd Yf Yg Yh Yj Yk Yl Yp Yq Yt Yv Yw Yx Yy Yz Zb Zc Zf Zg Zk Zl Zp Zq Zr Zs Zt Zx Zy Zz EJ FJ FQ FZ GJ GQ
GZ IY JH JQ JX JY JZ KJ KQ KX KZ LJ LQ LZ MZ NQ OQ OZ PZ QF QG QH QJ QK QO QW QX QY QZ RZ TQ UO UQ VJ VQ VY VZ
WJ WQ WZ XG XH XJ XK XQ XU XW YB YF YH YI YJ YQ YV ZB ZC ZJ ZK ZL ZP ZQ ZV
"""
"""The pairs of letters (upper-upper, upper-lower, lower-lower) that are no token: all others are."""

HAN = (
    "一丁七万丈三上下不与专且世丘业东丝两严並丨个中丰串临丶丸丹为主丽举乃久么义之乌乎乐乔乗乘乙九也习乡书买乱乳乾亂"
    "了予争事二于亏云互五井亚些亞亡交亦产亩享京亭亮亲人亿什仁仅今介仍从仓仔仕他付仙代令以仪们仲件价任份企伊伍伏休众"
    "优伙会伝伟传伤伦伯估伴伸似但位低住佐体何余佛作你佣佩佳使來例供依侠価侣侧侯侵便係促俄俊俗保信修俱俺個倍們倒候借"
    "倡値倫债值倾假偏做停健側偶偷偿傅備储催傳傷億優儿允元兄充兆先光克免児兑兒兔党入內全兩八公六兰共关兴兵其具典养兼"
    "兽内円冈冊册再冒写军农冠冬冰冲决况冷冻净准凉凌减凝几凡凤処凭凯凰凸出击函刀分切刊刑划列刘则刚创初删判別利别到制"
    "刷券刺刻剂則削前剑剤剧剩剪副割創劇力办功加务动助努励劲劳効势勇勒動務勝募勢勤勿包化北匙匹区医區十千升午半华协卒"
    "卓協单卖南単博占卡卢卧卫印危即却卷卸厂厅历厉压厕厘厚原厦厨去县参參又叉及友双反収发叔取受变口古句另只叫召可台史"
    "右叶号司吃各合吉吊同名后吐向吕吗君吞吟否吧吨含听启吴吸吹吻吾呀呈告员呢周味呵呻呼命咋和咖咨咪品哈响員哥哦哪哭哲"
    "唐售唯唱商啊問啥啦啪善喊喘喜喝單営喷嘉嘎嘛嘴嘿四回因团団园困囲図围固国图圆圈國園圖團土圣在地圳场圾址坂均坊坏坐"
    "坑块坚坛坝坡坦坪型埃城埔域培基堂堡報場堵塑塔塘塞填境墓増墙增墨壁壇士壮声売处备変复夏夕外多夜够夢大天太夫央失头"
    "夹夺奇奈奉奋奏契奔奖套奥女奴奶奷奸她好如妇妈妓妖妙妞妮妹妻姆始姐姑姓委姚姜姨姿威娃娇娘娛娜娱婆婚婦婷媽子孔孕字"
    "存孙孟季孤学孩學宁它宅宇守安宋完宏宗官定宜宝实実宠审客宣室宫宮害宴家容宽宾宿寄密富寒寓寝察實寨寫寶寸对寺寻导対"
    "寿封専射将將專尊尋對導小少尔尖尚尝尤就尸尺尼尽尾尿局屁层居届屋屏展属履屯山岁岗岛岡岩岭岳岸峡峰島崎川州巡工左巧"
    "巨差己已巴巻币市布帅师希帐帖帝带師席帮帯帰帳帶常帽幅幕干平年并幸幻幼幽广広庄庆床序库应底店府废度座庫庭康廉廣延"
    "廷建开异弃弄弊式引弗弘弟张弱張強弹强归当录形彦彩彰影役彻彼往征径待很律後徐徒得從御復循微徳徴德徽心必忆忍志忘忙"
    "応忠忧快念忽怀态怎怒怕怖思怡急性怪总恋恐恒恢恩息恶悉悟悠患悦您悪悲情惊惑惜惠惨惯想意愛感愿慈態慎慢慧慰戀戏成我"
    "戒或战戦截戰戲戴戶户戸戻房所手才扎扑扒打払托扣执扩扫扬扰扱扶批找承技把抓投抗折抜択抢护报披抱抵押抽担拆拉拍拒拓"
    "拔拖拘招拜拟拥拨择括拳拼拾拿持挂指按挑挡挣挥振挺捕损换据捷掃授掉掌排掛採探接控推措掲揉描提插換握揭援搏搜搞搬搭"
    "携摄摆摇摘摩摸撃撑撒撞撤播撮撸擊操據擦攝支收改攻放政故效敌敏救敗教敢散敦敬数整敵數文斗料斤断斯新方於施旁旅旋族"
    "旗无既日旦旧旨早旬旭时旺昂昆昌明易昔星映春昨昭是昼显時晋晒晓晚晨普景晰晴晶智暂暇暑暖暗暨暮暴曜曝曰曲更書曹曼曾"
    "替最會月有朋服朗望朝期木未末本札术朱机杀杂权杆杉李杏材村杜束条来杨杭杯杰東松板极构析林枚果枝枪架柄柏某染柔柜查"
    "柱柳柴査标栋栏树栗校株样核根格桂桃框案桌桑档桥桶梁梅條梦梨梯械检棋棒棚森楚業極楼楽概榜樂樓標模樣横權欠次欢欣欧"
    "欲欺款歉歌歓歡止正此步武歩歲歳歴歷死毁毅母毎每毒比毕毛毫氏民气気氣氧水永汁求汇汉汗江池污汤決汽沁沃沈沉沒沖沙沟"
    "没沢沪河油治沿況泄泉泊法泛泡波泥注泰泳泽洁洋洗洛洞津洪洲活派流浅浆测济浓浜浦浩浪浮浴海消涉涓涙涛润涨涩涯液涵淘"
    "淡淫深混添清済渐減渠渡温測港游湖湘湾湿源滋滑滚满滤滨滴滿漂漏演漢漫潔潘潜潭潮澡澳激灣火灭灯灰灵灾炉炎炒炮炸点為"
    "炼烈烟烦烧热無焦然焼熊熟熱爆爰爱爵父爷爸爽片版牌牙牛牡牢牧物牲特犬犯状狂狐狗狠独狸狼猎猛猜猪猫献猴玄率玉王玖玛"
    "玩环现玲玻珍珠班現球理琪琳琴瑞甘甚甜生產産用田由甲申电男甸町画畅界留略番畫異當疆疑疗疫疯疲疼疾病症痛療癌発登發"
    "白百的皆皇皮盆盈益盐监盒盖盗盘盛盟監盤目直相盾省眉看県真眠眼着睛睡督知石码砂研砖破碰示礼社祖祝神祥票祭禁福禧离"
    "禽禾秀私秋种科秒秘租秦积称移程稍税種稱稳稿穆積穴究空穿立站竞竟章童端競竹第筆等筋筑答策筛筹签简算管箭箱節篇築篮"
    "籍米类粉粒粗粤粮精糕糖系紀約紅納純紙級素索紧紫累細紹終組経結絡給統絲絶經続維網総緒線締編續纠红约级纪纬纯纲纳纵"
    "纷纸纹纽线练组细织终绍经绑结绕绘给络绝统继绩绪续维综绿缓编缘缩缴缺网罗罚罩罪置署羅羊美羞群義羽翁翌習翔翠翻翼耀"
    "老考者而耐耗耳聊职联聘聚聞聪聯聲職肃肉肌肖股肤肥肩肯育肺胃胆背胎胖胜胞胡胶胸能腐腕腰腳腹腾腿臀臣自臭至致臺與興"
    "舍舒舔舗舞舟航般舰船艇良色艳艷艺艾节芝芬芯花芳芸芽苍苏苑苗若苦英范茶茸草荐荒荡荣药荷莉莎莓莞莫莱莲获菌菜華菲萄"
    "萌萝营萨萬落葉著葛葡董蒂蒙蒲蓝虎虐虑處虚號虫虹虽蜂蜜融血行術街衛衡衣补表袋袖袜被袭裁裂装裏裕裙補裝裤裸製西要覆"
    "見規視覚覧親観覽觀见观规视览觉角解触言訂計訊討記訪設許訳診証評詞詢試話詳誉誌認誘語說説読誰課調讀變讓计订认讨让"
    "训议讯记讲许论设访诀证评识诈诉诊词译试诗诚话询该详语误诱说请诸诺读课谁调谈谋谓谜谢谨谱谷豆豊象豪豹貌負財貨販責"
    "買貸費貼賀資賞質購贝负贡财责贤败账货质贫购贯贴贵贷贸费赁资赋赌赏赔赖赚赛赞赠赢赤赫走赴赵赶起超越趋趣足跃跌跑距"
    "跟跨路跳践身車軍転軽轉车轨轩转轮软轴轻载较辅辆辉辑输辖辛辞辣辦辨辰辱農边辺込辽达迁迅过迈迎运近返还这进远违连迟"
    "迪迫述迷迹追退送适逃逆选逊透逐递途這通速造連週進逸逻逼遂遇遊運遍過道達違遗遠遣遥適遭遮遵選避邀還邑那邦邪邮邻郎"
    "郑部郭郵都配酒酷酸醒采释里重野量金鉴鑫针钟钢钥钮钱钻铁铃铜铭银铺链销锁锅锋锐错锡锦键镇镜長长門閉開間関閱閲關门"
    "闪闭问闲间闻阁阅队阪防阳阴阵阶阻阿附际陆陈陌降限院除险陪陰陵陶陷険陽隆隊階随隐隔際障难雀雄雅集雑雕雙雞離難雨雪"
    "零雷電需震霍霞露霸青靖静非靠面革韓韩音響頁頂頃項順須預領頭頻頼題額顔願類页顶项顺须顾顿预领频颖颗题颜额風风飛飞"
    "食飯飲饭饮饰馆馈首香馨馬驗马驰驱驶驻驾验骑骗骚骤骨骰高魔鱼鲁鲜鲸鸟鸡鸣鸭鸿鹅鹏鹰鹿麗麟麦麻麼黃黄黎黑黒默點鼎鼓"
    "鼠鼻龙"
)
"""Han characters that cost at most one token wherever they stand."""

HANGUL = (
    "가각간갈감갑값강같개객거건걸검겁것게겠겨격견결겼경계고곡곤골곳공과관광괴교구국군굴권귀규균그극근글금급기긴길김"
    "까깔깨꺼꽃꿈끄끌끔끝끼낌나난날남납났내낸낼냈냐냥너널넘네넷녀녁년념녕노논놀농높놓누눈뉴느는늘능니닉닌님닝다닥단"
    "닫달담답닷당대댓더덕던덤데델도독돈돌동돼됐되된될됨됩두둘드득든들듯등디딩따때떠떤또뜨뜻라락란람랍랑래랙랜램랩랫"
    "략량러럭런럴럼럽렇레렉렌렛려력련렬렴렵렸령례로록론롤롭롯뢰료루룸룹류률르른를름리릭린릴림립릿링마막만많말맛망맞"
    "매맥맨머먹먼멀메멘며면명몇모목몬몰몸못무문물므미민밀밍및바박밖반받발밤방배백버번벌범법베벤벨벽변별병보복본볼봉"
    "봐봤부북분불붙브블비빈빌빙빛빠사삭산살삼상새색생샵서석선설섭성세센셀셔션셜셨소속손솔송쇄쇼수숙순술숨쉬쉽슈스슨"
    "슬슴습슷승시식신실심십싱싶싸써쓰쓴씀씨씩씬아악안않알암압았앙앞애액앤앨야약양어억언얼엄업없엇었에엔엘여역연열염"
    "였영예오옥온올옵와완왔왕왜외요욕용우욱운울움웃워원월웠웨웹위윈유육윤율융으은을음응의이익인일읽임입있자작잔잘잠"
    "잡장재저적전절점접정제젝젠져졌조족존좀종좋좌죄죠주죽준줄중줘즈즌즐즘증지직진질짐집짓징짜짝째쪽찌찍차착찬찮찰참"
    "창찾채책처척천철첨첫청체초촉촌총최추축춘출춤충춰츠측층치칙친칠침칭카칼캐커컨컬컴컵케켓켜코콘콜콩쿠큐크큰클큼키"
    "킨킬킹타탁탄탈탕태택터턴털테텍텐텔템토톡톤통퇴투튀튜트특튼틀티틱틴팀팅파판팔패팩팬퍼페펴편평폐포폭폰폴폼표풀품"
    "풍프픈플피픽핀필핏핑하학한할함합항해했행향허헌험헤혀혁현혈협형혜호혹혼홀홈홍화확환활황회획효훈휴흡흥희히힌힘"
)
"""Syllables of the same kind."""

ONE = """\
80 92-94 99 a0-da dc-109 10b-10d 10f-111 113 117-119 11b 11d-11f 121 123 127 129 12b 12f-131 135 137 13a 13c 13e
141-144 146 148 14b 14d 150-153 158-15b 15d-163 165 168-169 16b 16d 16f 171 173 175 177-17f 18f-190 192 199
1a0-1a1 1af-1b0 1ce 218-21b 251 253-254 257 259 25b 275 2bb-2bc 2c6 2da 2dc-2dd 300-303 306 308-30a 30c 323 327
32d 384 386 388 38c 390-3a1 3a3-3a9 3ac-3af 3b1-3ce 401-402 404-408 40e 410-44f 451-45c 45e-45f 490 492-493 497
499-49b 49f-4a1 4a3 4a7 4a9 4ab 4ad-4b3 4b5-4b7 4ba-4bb 4bd 4bf 4d8-4d9 4e1 4e3 4e8-4e9 4ef 4f7 525 531-535
538-53f 561 564-565 568 56b 56f 574-576 578 57d-587 589 5b0 5b4-5b9 5bc 5be-5bf 5d0-5ea 5f2-5f4 60c 61b 61f
621-63a 640-654 660-66c 670 679-681 683-68a 68c-68d 68f 691 693 695-696 698-69a 6a9-6ab 6ad 6af 6b3 6b5 6ba-6bc
6be 6c0-6c1 6c3 6c6-6c8 6cb-6ce 6d0 6d2 6d4-6d5 6f0-6f9 6fd-6fe 901-903 905-90a 90f-911 913-928 92a-933 935-939
93c-943 945 947-949 94b-94d 958 95b-95e 964-970 981-983 985-987 989 98f 993 995-9a8 9aa-9b0 9b2 9b6-9b9 9bc
9be-9c3 9c7-9c8 9cb-9ce 9dc-9dd 9df 9e6-9f1 9f7 a02 a05-a09 a0f-a10 a13 a15-a18 a1a a1c-a1d a1f-a21 a23-a28
a2a-a30 a32 a35-a36 a38-a39 a3c a3e-a42 a47-a48 a4b-a4d a5b-a5c a67-a68 a70-a71 a82-a83 a85-a89 a8f a93 a95-a98
a9a-a9d a9f-aa8 aaa-ab0 ab2-ab3 ab5-ab9 abe-abf b06-b07 b15 b17 b19-b1c b1f b21 b23-b28 b2a b2c-b2e b30 b32-b33
b36-b39 b3e-b3f b85-b87 b89 b8e b92 b95 b99-b9a b9c b9e-b9f ba3-ba4 ba8-baa bae-bb5 bb7-bb9 bbe-bbf c3e-c3f
c82-c83 c85-c89 c8e c90 c92 c95-c98 c9a c9c c9f-ca8 caa-cb0 cb2-cb3 cb5-cb9 cbe-cbf d02 d05-d09 d0e d10 d12-d13
d15-d1a d1c d1e-d21 d23-d28 d2a-d39 d3e-d43 d46-d48 d4a-d4b d4d d57 d7a-d7e d82 d85 d91 d94 d9a d9c d9f-da0 da2
da7 da9 dab dad-db1 db3-db4 db6-dbb dbd dc0-dc5 dca dcf-dd4 dd6 dd8-dda ddc-ddd e19 e23 e2d e32 e40-e44 e46-e4d
e51-e52 1000-1002 1004-1007 100a 100f-1012 1014-101f 1021 1025 102b-1033 1036-103e 1040-104b 104d 104f 105a
107e-1080 1088 108f-1090 1094-1095 10d0 10d4 10d8 10dd 17b6 17c0-17cd 17cf-17d0 17d2 17d4 17d6-17d7 17e0-17e9
1e13 1e25 1e3d 1e41 1e43 1e45 1e47 1e4b 1e5b 1e62-1e63 1e6d 1e71 1ea0-1ea9 1eab-1eaf 1eb1 1eb3 1eb5-1eb9 1ebb
1ebd-1ec3 1ec5-1ec7 1ec9-1ecd 1ecf-1ed5 1ed7-1edf 1ee1-1ee9 1eeb 1eed 1eef-1ef1 1ef3 1ef7 1ef9 1f00 1f10 1f50
1f70 1f76-1f78 1fd6 1fe6 1ff6 2002-2003 2005 2009-2011 2013-2015 2018-201a 201c-2022 2024 2026 2028 202a-2030
2032-2033 2039-203c 2060 2063 2082 20aa 20ac 20b9 2103 2116 2122 2126 2190-2193 21d2 2200 2206 2212 2219-221a
221e 2228 2248 2264-2265 226b 2500-2503 251c 2523 2550-2551 2557 255d 2580 2584 2588 258b 2591-2593 25a0-25a1
25aa-25ac 25b2-25b3 25b6-25b7 25ba 25bc-25bd 25c6-25c7 25cb 25ce-25cf 2605-2606 260e 2634 263a 2640 2642 2661
2665-2666 266a-266b 2705 2713-2714 2728 2764 27a1 2b50 3000-3002 3005 3007-3012 3014-3016 301c 3041-3042 3044
3046-3048 304a-3061 3063-306b 306d-3073 3075-3079 307b-308d 308f 3092-3093 30a1-30a4 30a6-30c1 30c3-30c4
30c6-30cb 30cd-30ed 30ef 30f3-30f4 30f6 30fb-30fd 3147 314b 314e 3160-3161 318d 33a1 f0a7 f0b7 f0d8 f0fc fb01
fe0e-fe0f feff ff01 ff05-ff06 ff08-ff27 ff2b ff2d-ff30 ff32-ff34 ff3b-ff40 ff4d ff57 ff5c ff5e ff61 ff64-ff65
ff6f-ff70 ff72 ff89 ff9c ff9e-ff9f ffe3 ffe5 fffc-fffd 1f447 1f449 1f44c-1f44d 1f44f 1f495 1f525 1f600-1f602
1f609-1f60a 1f60d 1f618 1f62d 1f642 1f64f 1f923
"""
"""Other characters of the same kind, as ranges of code points."""

TWO = """\
8ff-fc0 1000-10ff 1200-137f 1780-1800 1d00-1d3f 1e00-1f7f 1fc0-233f 2440-26bf 2700-27bf 2b00-2b3f 3000-317f
3200-323f 3380-33bf 4e00-5d3f 5dc0-6abf 6b00-877f 87c0-8800 8840-977f 97c0-9bbf 9c80-9d00 9e00-9fc0 ac00-ad7f
adc0-ae7f aec0-af3f b000-b1bf b200-b23f b280-b37f b3c0-b47f b4c0-b53f b580-b5bf b680-b6bf b700-b87f b8c0-babf
bb00-bb3f bbc0-bc3f bc80-bd3f bd80-be7f c040-c300 c340-c37f c500-c7bf c800-c93f c97f-c9ff ca40-ca7f cc00-cd3f
cd80-cdbf ce00-cf7f cfc0-d1bf d200-d23f d280-d33f d380-d3ff d480-d4bf d500-d6bf d740-d7bf e000-e03f e600-e63f
e8ff-e93f f000-f0ff fb00-fb3f fd00-fd3f fe00-ffff 1d400-1d43f 1d5c0-1d5ff 1f1c0-1f1ff 1f300-1f53f 1f600-1f6bf
1f8ff-1f97f
"""
"""Ranges of characters of three or more bytes that cost at most two."""

THREE = """\
11400-1143f 11700-1173f 11ac0-11aff 11e00-11e3f 128ff-1293f 13740-1377f 13a00-13a3f 13c00-13c3f 13d00-13d3f
13e00-13e3f 15140-1517f 15300-1533f 18400-1847f 19080-190bf 1a300-1a33f 1b100-1b13f 1b200-1b23f 1bc00-1bc3f
1c600-1c63f 1cd00-1cd3f 1d000-1dfff 1e2c0-1e300 1e340-1e37f 1f000-2003f 21c00-21c3f 22140-2217f 222c0-22300
22c00-22c3f 23f00-23f3f 23fc0-23fff 24440-2447f 25fc0-25fff 26080-260bf 26b00-26b3f 27400-2743f 2af40-2af7f
2b600-2b63f 2cb00-2cb3f 2d400-2d43f 2d500-2d57f 2e8ff-2e93f
"""
"""Ranges of characters of four bytes that cost at most three."""
